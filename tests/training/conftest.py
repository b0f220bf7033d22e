"""The text that runs of these tests are trained on, where they bring none of their own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest


@pytest.fixture
def text(tmp_path) -> Path:
    draw = random.Random(0)
    words = ("so", "it", "goes", "on", "and", "ends")
    path = tmp_path / "text.txt"
    lines = (" ".join(draw.choices(words, k=draw.randint(1, 4))) for _ in range(30))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
