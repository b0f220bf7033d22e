"""Signal handling: SIGINT, SIGTERM and SIGHUP end a command in the same way."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TypeVar

from seqgen import _import_depth, ranks

T = TypeVar("T")

# What a run is ended by from outside; Windows has no hangup.
NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
# Seconds after which the user is told what an interrupted run still does.
SLOW_SECONDS = 1.0
# Seconds between two looks whether an import has ended.
IMPORT_SECONDS = 0.05


class Interruption:
    """Signal handler of a training loop: stop and save at the next safe point.

    The first signal asks the loop to stop. A second one raises KeyboardInterrupt if that takes so
    long that the user has been told; once the loop saves, it has no effect.

    Under torchrun nothing is raised: torchrun may send several signals for one, and kills what
    takes too long.

    Args:
        tell: says to the user what the loop still does; called in a thread.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._asked, self._heeded = threading.Event(), threading.Event()
        self._told = self._breaks_off = False

    def is_heeded(self) -> bool:
        """Check, at a safe point, whether the loop is to stop; the caller then does so."""
        if self._asked.is_set():
            self._heeded.set()
        return self._heeded.is_set()

    def break_off(self, work: Callable[[], T]) -> T | None:
        """Return the result of `work`, which a signal ends at once; None if it has."""
        try:
            self._breaks_off = True
            try:
                return None if self._asked.is_set() else work()
            finally:
                self._breaks_off = False
        except KeyboardInterrupt:
            return None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._asked.set()
        ends = self._breaks_off or (self._told and not self._heeded.is_set())
        if ends and not ranks.is_launched():
            raise KeyboardInterrupt

    def _tell_if_slow(self) -> None:
        self._asked.wait()
        if not self._heeded.wait(SLOW_SECONDS):
            self._told = True
            self._tell()

    @contextlib.contextmanager
    def handling(self) -> Iterator[None]:
        """Handle the signals in this way within a block."""
        watch = threading.Thread(target=self._tell_if_slow, daemon=True)
        watch.start()
        try:
            with handle_signals(self._handle, known_signals()):
                yield
        finally:
            self._heeded.set()
            self._asked.set()


@contextlib.contextmanager
def ending_as_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt on the signals, after any import, so that files are removed.

    An exception in the middle of an import is swallowed by some extension modules, and leaves
    others half made.
    """
    outside = _import_depth(sys._getframe())

    def handle(number: int, frame: FrameType | None) -> None:
        if _import_depth(frame) <= outside:
            raise KeyboardInterrupt
        _thread.start_new_thread(repeat, (number,))

    def repeat(number: int) -> None:
        time.sleep(IMPORT_SECONDS)
        _thread.interrupt_main(number)

    handled = [n for n in known_signals() if signal.getsignal(n) is not signal.SIG_IGN]
    with handle_signals(handle, handled):
        yield


def known_signals() -> list[signal.Signals]:
    """Select the signals that this platform has, without a SIGHUP that `nohup` ignores."""
    known = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    ignored = {n for n in known if signal.getsignal(n) is signal.SIG_IGN}
    return [number for number in known if number is signal.SIGINT or number not in ignored]


@contextlib.contextmanager
def handle_signals(
    handle: Callable[[int, FrameType | None], None], signals: Sequence[signal.Signals]
) -> Iterator[None]:
    """Handle signals within a block, in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(number, signal.getsignal(number)) for number in signals]
    for number in signals:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
