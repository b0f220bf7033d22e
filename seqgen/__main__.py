"""Entry point of `seqgen` and `python -m seqgen`, ready for Ctrl-C before heavy imports.

This module imports nothing that Python has not loaded already, so that its handler is there as soon
as the interpreter has started. `signal` itself would take milliseconds: it imports `enum`.
"""

from __future__ import annotations

import _signal as signal
import os
import sys

from seqgen import _import_depth, _interrupted_line

TYPE_CHECKING = False  # as in the package itself, to spare an import

if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

INTERRUPTED = 130
UTF8_MODE = "PYTHONUTF8"


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        catch_interrupts()
        use_utf8()
        set_up_numpy()
        from seqgen.cli import main as run_command
        from seqgen.files import drop_unwritable_output

        code = run_command()
        # Python's end puts the default back, which would kill a command that is done already.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        say_interrupted()
        leave()
    if code == INTERRUPTED:
        leave()
    if "torch" in sys.modules and "LOCAL_RANK" not in os.environ:
        finish(code)
    drop_unwritable_output()
    sys.exit(code)


def set_up_numpy() -> None:
    """Set NumPy's threads and memory use before it is imported, unless the environment does.

    One thread: products of a few rows take some 60 microseconds, and waking a second thread on a
    busy machine takes milliseconds. PyTorch has threads of its own. No huge pages: of a cache with
    room for more, each would be filled with zeros at the first touch of any part of it.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")


def use_utf8() -> None:
    """Restart in Python's UTF-8 mode if the locale would decode arguments differently.

    Text is UTF-8 everywhere in seqgen, so that a prompt and a file name are, whatever the locale.
    """
    other = sys.getfilesystemencoding().lower() not in ("utf-8", "utf8")
    if other and os.name == "posix" and os.environ.get(UTF8_MODE) != "1":
        os.environ[UTF8_MODE] = "1"
        os.execv(sys.executable, sys.orig_argv)


def catch_interrupts() -> None:
    """Install the handler for SIGINT, SIGTERM and SIGHUP, unless they are ignored.

    Ctrl-C is ignored in the background of a script, a hangup under nohup.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no hangup
        defaults = (signal.default_int_handler, signal.SIG_DFL)
        if number is not None and signal.getsignal(number) in defaults:
            signal.signal(number, handle_interrupt)


def handle_interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the running code; exit at once while a module is being imported.

    An exception in the middle of an import is swallowed by some extension modules, and leaves
    others half made, with threads that abort the process at its end.
    """
    if _import_depth(frame):
        say_interrupted()
        leave()
    raise KeyboardInterrupt


def say_interrupted() -> None:
    """Print the line that ends every interrupted command."""
    # A second Ctrl-C finds nothing more to interrupt.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:  # noqa: SIM105  (contextlib would be one more import)
        os.write(2, f"seqgen: {_interrupted_line(sys.argv[1:])}\n".encode())
    except OSError:  # standard error is closed
        pass


def finish(code: int) -> NoReturn:
    """Exit like Python, but without tearing down modules.

    That takes half a second once PyTorch is loaded. Threads are waited for, exit handlers run and
    output is flushed first.
    """
    import atexit
    import contextlib
    import threading

    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none, or it is closed
            stream.flush()
    os._exit(code)


def leave() -> NoReturn:
    """Exit immediately, without waiting for threads; all output is already flushed.

    A thread that reads standard input, or one of torch's, may hold what Python's own end needs.
    """
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
