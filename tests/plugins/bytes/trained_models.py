"""Models that the tests of a file share, trained on one text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from seqgen.cli import run


def train_models(folder: Path, text: str, models: Mapping[str, Sequence[str]]) -> Path:
    """Train models with their options, by name, and return the home that they are in."""
    home, path = folder / "home", folder / "text.txt"
    path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(home))
        for name, options in models.items():
            assert run(["train", str(path), "--name", name, "-q", *options]) == 0
    return home
