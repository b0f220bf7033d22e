"""The text that most tests of tune train on."""

from __future__ import annotations

import pytest


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat and the dog sat on the log\n" * 20)
    return path
