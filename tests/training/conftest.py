"""The text that runs of these tests are trained on, where they bring none of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_runs import write_few_words


@pytest.fixture
def text(tmp_path) -> Path:
    return write_few_words(tmp_path / "text.txt")
