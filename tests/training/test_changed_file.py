"""Resuming a run of many files of which one has changed."""

from __future__ import annotations

import os
import time


def test_changed_files_are_named_and_not_all_others(cli, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number:02}.txt").write_text("the cat sat on the mat.\n" * 4)
    shape = ("--model", "rnn", "--hidden-size", "4", "--steps", "4", "--stop-after", "2")
    assert cli("train", folder, "--name", "r", "--quiet", *shape)[0] == 0
    (folder / "17.txt").write_text("a dog ran.\n" * 4)
    later = time.time() + 5
    os.utime(folder / "17.txt", (later, later))
    code, _, err = cli("train", "--resume", "r")
    names = ", ".join(str(folder / f"{number:02}.txt") for number in range(3))
    changed = f"{folder / '17.txt'} changed since"
    said = f"seqgen: {names} and 27 more is not the text r was trained on ({changed}); give --data"
    assert code == 1 and err.startswith(said)
