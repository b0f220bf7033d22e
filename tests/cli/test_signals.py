"""Runs that are ended from outside, and runs that nobody listens to any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from places import ROOT

from seqgen import store
from seqgen.cli import run
from seqgen.cli.shell.output import Output
from seqgen.cli.shell.progress import display
from seqgen.training import train as training
from seqgen.training.events import Notice, Progress

TINY = ["--hidden-size", "8", "--layers", "1", "--seed", "1", "--precision", "float32"]
SHORT = ["--name", "x", "--steps", "4", *TINY]
SIGNALS = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n)]


@pytest.fixture
def text(tmp_path) -> str:
    (tmp_path / "text.txt").write_text("the cat sat on the mat.\n" * 20)
    return str(tmp_path / "text.txt")


@pytest.fixture
def signalled(monkeypatch):
    """Return what makes a run send itself a signal: at an event, or before its model is made."""

    def when(number, place):
        if place == "preparing":
            monkeypatch.setattr(training, "choose_size", lambda *_: signal.raise_signal(number))
            return

        def take(self, event):
            if isinstance(event, Progress):
                signal.raise_signal(number)

        monkeypatch.setattr("seqgen.training.loop.LOG_SECONDS", 0.0)
        monkeypatch.setattr("seqgen.cli.shell.progress.LineDisplay.take", take)

    return when


@pytest.mark.parametrize("number", SIGNALS)
def test_any_of_them_saves_and_ends_with_130(number, text, signalled, capfd):
    before = signal.getsignal(number)
    signalled(number, "training")
    assert run(["train", text, *SHORT]) == 130
    assert "resume with: seqgen train --resume x" in capfd.readouterr().err
    assert store.find("x").read_checkpoint()[1]["run"]["step"] == 1
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", SIGNALS)
def test_before_training_nothing_is_left(number, text, signalled, capfd):
    before = signal.getsignal(number)
    signalled(number, "preparing")
    assert run(["train", text, *SHORT]) == 130
    assert capfd.readouterr().err == "seqgen: interrupted; nothing saved yet\n"
    assert not list(store.models_folder().glob("*"))
    assert signal.getsignal(number) is before


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no hangup")
def test_a_hangup_that_nohup_ignores_stays_ignored(text, signalled):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signalled(signal.SIGHUP, "training")
        assert run(["train", text, *SHORT]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def replaced_stderr(monkeypatch, descriptor):
    stream = os.fdopen(descriptor, "w", buffering=1)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_reader_that_leaves_ends_nothing(text, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    stream = replaced_stderr(monkeypatch, writer)
    assert run(["train", text, *SHORT]) == 0
    stream.close()  # as at the end of the program
    assert store.find("x").record["result"]["steps"] == 4


def test_a_reader_that_leaves_changes_no_exit_code(text, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    stream = replaced_stderr(monkeypatch, writer)
    assert run(["train", text, *SHORT, "--lr", "-1"]) == 2
    stream.close()


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_terminal_that_is_closed_ends_nothing(monkeypatch):
    import pty

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)

    master, slave = pty.openpty()
    stream = replaced_stderr(monkeypatch, slave)
    with display(Output()) as report:
        report(Notice(text="one"))
        os.close(master)
        report(Notice(text="two"))
    stream.close()


@pytest.mark.slow
def test_head_sees_its_line_and_training_ends_as_ever(text, tmp_path):
    command = f"{sys.executable} -m seqgen train {text} {' '.join(SHORT)} --set validate_every=1"
    done = subprocess.run(
        ["bash", "-c", f"{command} 2>&1 | head -n 1; exit ${{PIPESTATUS[0]}}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")
    assert store.find("x").record["result"]["steps"] == 4
