"""Run many commands from one process that has loaded everything: a fork for each.

`python forked.py` reads a case as a line of JSON and answers with a line: exit code (negative for
a signal), standard error, the start of standard output, seconds, and the largest resident memory.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path

from places import STORED

# What a run may take of processor time, and of address space beyond what is loaded already; one
# that waits for something forever uses no processor time.
SECONDS, SPACE = 20, 3 << 30
LONGEST_WAIT = 600.0  # seconds of wall time: other processes may keep the machine busy
SHOWN = 4000


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `code` is None if it had to be killed for its time."""

    code: int | None
    out: str
    err: str
    seconds: float
    rss: int


class Server:
    """The process that forks; used as a context."""

    def __enter__(self) -> Server:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        return self

    def run(self, arguments: list[str], home: Path, folder: Path) -> Outcome:
        """Run `seqgen` with these arguments in a folder, with a `SEQGEN_HOME`."""
        case = {"arguments": arguments, "home": str(home), "folder": str(folder)}
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


def serve() -> None:
    """Answer cases until the input ends."""
    cases, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    load_everything()
    for line in cases:
        answers.write(json.dumps(outcome(json.loads(line))) + "\n")
        answers.flush()


def load_everything() -> None:
    """Import what commands import when they run, and start no thread."""
    import importlib
    import pkgutil

    import rich.progress  # noqa: F401
    import sacrebleu  # noqa: F401
    import safetensors.torch  # noqa: F401
    import torch

    import seqgen

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(seqgen.__path__, "seqgen."):
        if "__main__" not in module.name and "worker" not in module.name:
            importlib.import_module(module.name)
    with tempfile.TemporaryDirectory() as home:
        warm_up(home)
    gc.freeze()  # a collection in a child would copy every page of it


def warm_up(home: str) -> None:
    """Run a few commands, so that what they load when they are first used is there."""
    from seqgen.cli import run

    data = STORED
    text, model = str(data / "tiny.txt"), str(data / "models" / "lstm-char")
    os.environ["SEQGEN_HOME"] = home
    small = ["--hidden-size", "8", "--layers", "1", "--seq-len", "8", "--steps", "2"]
    for command in (
        ["sample", "-m", model, "--max-tokens", "3"],
        ["beam-search", "-m", model, "--max-tokens", "3"],
        ["train", text, *small, "--name", "a"],
        ["train", text, *small, "--model", "transformer", "--name", "b"],
        ["train", text, "--model", "ngram", "--tokenizer", "bpe", "--vocab-size", "280"],
        ["eval", "-m", "a", "--passages", "2"],
        ["compare", "a", "b"],
        ["perplexity", text, "-m", "a"],
        ["models"],
        ["bleu", text, text],
    ):
        assert run(command) == 0, command


def outcome(case: dict) -> dict:
    """Fork, run, and wait; kill what takes too long."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            run_and_leave(case, out.fileno(), err.fileno())
        code, rss = waited(child)
        seconds = time.monotonic() - began
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode(errors="backslashreplace"))
    return {
        "code": code,
        "out": said[0][:SHOWN],
        "err": said[1][-SHOWN:],
        "seconds": seconds,
        "rss": rss,
    }


def waited(child: int) -> tuple[int | None, int]:
    """Return a child's exit code, None if it was killed for its time, and its memory in bytes."""
    handle = os.pidfd_open(child)
    done, _, _ = select.select([handle], [], [], LONGEST_WAIT)
    os.close(handle)
    if not done:
        os.killpg(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    in_time = done and code != -signal.SIGXCPU
    return (code if in_time else None), usage.ru_maxrss * 1024


def run_and_leave(case: dict, out: int, err: int) -> None:
    """Be the command: never returns."""
    code = 99
    try:
        os.setpgid(0, 0)
        use_streams(0, out, err)
        os.environ["SEQGEN_HOME"] = case["home"]
        os.chdir(case["folder"])
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + SPACE, used + SPACE))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        from seqgen.cli import run

        code = run(case["arguments"])
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def use_streams(source: int, out: int, err: int) -> None:
    """Let this process read and write these files, as if it had been started with them."""
    for wanted, number in ((source, 0), (out, 1), (err, 2)):
        os.dup2(wanted, number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(0, closefd=False),  # noqa: SIM115
        open(1, "w", encoding="utf-8", closefd=False),  # noqa: SIM115
        open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False),  # noqa: SIM115
    )


def training_processes() -> ForkServerContext:
    """Return what starts processes that train: forks of one that has loaded what that takes.

    Unlike forks of this process, they may use autograd, whose threads it has.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["seqgen.training.train", "torch.distributed.fsdp"])
    return context


def program(
    arguments: Sequence[str | Path],
    given: bytes = b"",
    on_terminal: Collection[int] = (),
    **variables: str,
) -> tuple[int, bytes, bytes]:
    """Run `seqgen` in a fork of this process, which need not load Python and torch again.

    Args:
        arguments: of the command.
        given: what standard input gives, by a pipe.
        on_terminal: which of the streams 0, 1 and 2 are a pseudo-terminal.
        variables: of the environment, beside this process's.

    Returns:
        The exit code, negative for a signal; what the terminal and standard output got; and what
        standard error got.
    """
    read, write = os.pipe()
    shown, terminal = os.openpty()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.close(write)
            files = (read, out.fileno(), err.fileno())
            be_program(
                arguments, variables, [terminal if n in on_terminal else files[n] for n in range(3)]
            )
        os.close(read)
        os.close(terminal)
        with contextlib.suppress(BrokenPipeError), os.fdopen(write, "wb") as file:
            file.write(given)
        seen = b""
        with contextlib.suppress(OSError):  # as soon as the other end is closed
            while block := os.read(shown, 1 << 16):
                seen += block
        os.close(shown)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return os.waitstatus_to_exitcode(status), seen + out.read(), err.read()


def be_program(
    arguments: Sequence[str | Path], variables: dict[str, str], files: list[int]
) -> None:
    """Be the command with these streams: never returns."""
    code = 99
    try:
        use_streams(*files)
        os.environ.update(variables)
        from seqgen.cli import run

        code = run([os.fspath(argument) for argument in arguments])
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
