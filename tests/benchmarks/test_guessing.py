"""The speed of guessed tokens, as the benchmark prints it."""

import random

import pytest
from helpers_cli import needs, records, refusal

from benchmarks.__main__ import run
from seqgen.cli import run as run_seqgen
from seqgen.engines.native.library import library

from . import guessing


@needs("speculative")
@pytest.mark.skipif(library() is None, reason="without the compiled library")
def test_the_speed_of_guesses_is_measured(capsys, home, tmp_path, monkeypatch):
    monkeypatch.setattr(guessing, "LENGTH", 60)
    (tmp_path / "prose.txt").write_text("ten at sea, and tea at ten\n" * 99)
    small = ("--heads", "2", "--layers", "1", "--hidden-size", "8", "--seq-len", "16")
    text, few = ("--tokenizer", "byte", *small), ("--steps", "2", "--name", "m", "--quiet")
    train = ("train", str(tmp_path / "prose.txt"), "--model", "transformer", *text, *few)
    assert run_seqgen([*train]) == 0
    about = ("guessing", "-m", "m", "--prompts", "1", "--tokens", "9", "--prose")
    found = records(capsys, *about, tmp_path / "prose.txt", by=run)
    assert [record["prompts"] for record in found] == ["Python"] * 2 + ["list"] * 2 + ["prose"] * 2
    assert all(record["same"] and record["ratio"] > 0 for record in found)
    assert "--prose" in refusal(capsys, *about[:-1], by=run)


def test_a_list_begins_again():
    lines = guessing.repeated_list(random.Random(1)).splitlines()
    assert lines[-1] == lines[1] and len(lines) == 20
