"""Names of files with control characters, or that are not UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_messages_in_logs_are_lines_without_control_characters(cli, tmp_path):
    """Off a terminal, too: a log is read on one later."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("the cat sat on the mat\n" * 20)
    (folder / "b\x1b]0;owned\x07.json").write_text('{"a": 1}\n')
    (folder / "c\nd.bin").write_bytes(b"\0\1\2" * 50)
    with open(os.path.join(os.fsencode(folder), b"e\xff.pdf"), "wb") as file:  # noqa: PTH118, PTH123
        file.write(b"no PDF")
    code, _, said = cli("train", folder, "--model", "ngram", "--order", "2", "--name", "m")
    assert code == 0
    assert "b\\x1b]0;owned\\x07.json" in said
    assert "c\\nd.bin" in said
    assert "e\\xff.pdf" in said
    assert not any(c in said for c in "\x1b\x07\udcff")
    code, out, _ = cli("data", folder, "--json")
    left_out = [Path(name).name for name in json.loads(out)["left_out"]]
    assert (code, left_out) == (0, ["c\nd.bin", "e\\xff.pdf", "b\x1b]0;owned\x07.json"])


@pytest.mark.slow
def test_names_are_shown_escaped(tmp_path):
    """In the table of `seqgen data`, and in the line of an error."""
    pty = pytest.importorskip("pty", reason="no pseudo-terminals")
    (tmp_path / "a\x1b]0;owned\x07.txt").write_text("a text of words\n" * 10)
    other = os.path.join(os.fsencode(tmp_path), b"b\x1b\xff.txt")  # noqa: PTH118
    with open(other, "wb") as file:  # noqa: PTH123
        file.write(b"no text\xff\xfe\n" * 10)
    shown = b""
    for name in (b"a\x1b]0;owned\x07.txt", b"b\x1b\xff.txt"):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "seqgen", "data", name]
        subprocess.run(command, cwd=tmp_path, stdout=theirs, stderr=theirs, check=False)
        os.close(theirs)
        try:
            while block := os.read(ours, 1 << 16):
                shown += block
        except OSError:  # the other end is closed, and all is read
            pass
        os.close(ours)
    assert b"a\\x1b]0;owned\\x07.txt" in shown and b"b\\x1b\\xff.txt" in shown
    assert b"\x1b]0;" not in shown and b"\x07" not in shown
