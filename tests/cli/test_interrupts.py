"""Ctrl-C at any moment is one line and exit code 130, from before the imports to the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading

import pytest
from interrupts import commands, interrupted
from places import STORED

from seqgen.cli import run
from seqgen.text.tokenizers import tokenizer_kind
from seqgen.text.tokenizers.interruptible import run_interruptible

NAMES = tuple(commands(STORED))


def check(name: str, code: int, said: str) -> None:
    """A command was interrupted, and says so in one line; or it had ended already."""
    assert code in (0, 130), said
    if not code:
        assert said == ""
    elif name in ("train", "ngram"):  # tests/cli/test_ctrl_c.py has what follows
        assert said.startswith("seqgen: ") and said.count("\n") == 1
        assert any(word in said for word in ("nothing saved yet", "resume with", "is saved"))
    else:
        assert said == "seqgen: interrupted\n"


@pytest.mark.parametrize(
    ("name", "after"), [("models", 0.0), ("sample", 0.02), ("train", 0.15), ("bleu", 0.3)]
)
def test_imports_are_interrupted(name, after, tmp_path):
    check(name, *interrupted(commands(tmp_path)[name], after, tmp_path / "home"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "moments",
    [
        pytest.param((0.1, 1, 3), marks=pytest.mark.slow),
        pytest.param((0.1, 0.5, 1, 2, 3, 3), marks=pytest.mark.long),
    ],
)
def test_any_moment_is_interrupted(name, moments, tmp_path):
    draw = random.Random(f"{name} {len(moments)}")
    every = commands(tmp_path)
    if name == "import":
        assert run([*every["export"][:-3], str(tmp_path / "in.arpa"), "-q"]) == 0
    for most in moments:
        check(name, *interrupted(every[name], draw.uniform(0, most), tmp_path / "home"))


def test_the_handler_waits_for_no_import():
    """In the time that an import takes, Ctrl-C would end in a traceback."""
    code = "import sys; b = set(sys.modules); import seqgen.__main__; print(*set(sys.modules) - b)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert set(done.stdout.decode().split()) <= {"__future__", "seqgen", "seqgen.__main__"}


def test_an_ignored_interrupt_stays_ignored():
    """As it is for `seqgen ... &` in a shell script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = (
            "import os, signal, seqgen.__main__ as entry; entry.catch_interrupts(); "
            "os.kill(os.getpid(), signal.SIGINT); print('went on')"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=False, timeout=60
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.stdout == b"went on\n" and done.returncode == 0


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_an_interrupt_outside_of_imports_is_python_s_own(name):
    """So that what was begun is cleaned up, and training can take it for itself."""
    code = (
        "import os, signal, seqgen.__main__ as entry; entry.catch_interrupts()\n"
        f"try: os.kill(os.getpid(), signal.{name}); signal.pause()\n"
        "except KeyboardInterrupt: print('caught')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False, timeout=60
    )
    assert done.stdout == b"caught\n" and done.returncode == 0


def test_a_command_that_is_done_is_not_killed_at_its_end(tmp_path):
    """Python's own end would put the signal's default back, under which the process dies."""
    code = (
        "import atexit, os, signal, sys, seqgen.__main__ as entry\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "sys.argv[1:] = ['--version']; entry.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=os.environ, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"seqgen ")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_an_interrupt_while_a_vocabulary_is_learnt_is_not_swallowed(kind):
    """The library would swallow what its source raises, and learn from the first half alone."""

    def chunks():
        yield "the cat sat on the mat\n" * 50
        signal.raise_signal(signal.SIGINT)
        yield "another half of the text\n" * 50

    with pytest.raises(KeyboardInterrupt):
        tokenizer_kind(kind).train(chunks(), 300)


def test_a_library_that_works_is_not_waited_for():
    begun, never = threading.Event(), threading.Event()

    def work():
        begun.set()
        never.wait(30)

    threading.Thread(target=lambda: begun.wait() and os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work)
    assert begun.is_set() and not never.is_set()
    never.set()


def test_a_library_s_result_and_its_errors_come_back():
    assert run_interruptible(lambda: threading.current_thread()) is not threading.main_thread()
    with pytest.raises(ZeroDivisionError):
        run_interruptible(lambda: 1 / 0)
