"""Signal handling: SIGINT, SIGTERM and SIGHUP end a command in the same way."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from seqgen import ranks

# What a run is ended by from outside; Windows has no hangup.
NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


@contextlib.contextmanager
def interruptible(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on the first signal; handle a second one as before.

    Under torchrun it does not: torchrun may send several for one, and kills what takes too long.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()
        if not ranks.is_launched():
            restore()

    with handle_signals(handle, known_signals()) as restore:
        yield


@contextlib.contextmanager
def ending_as_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, so that temporary files are removed."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with handle_signals(handle, known_signals(NAMES[1:])):
        yield


def known_signals(names: tuple[str, ...] = NAMES) -> list[signal.Signals]:
    """Select the signals that this platform has, without a SIGHUP that `nohup` ignores."""
    known = [getattr(signal, name) for name in names if hasattr(signal, name)]
    ignored = {n for n in known if signal.getsignal(n) is signal.SIG_IGN}
    return [number for number in known if number is signal.SIGINT or number not in ignored]


@contextlib.contextmanager
def handle_signals(
    handle: Callable[[int, FrameType | None], None], signals: Sequence[signal.Signals]
) -> Iterator[Callable[[], None]]:
    """Handle signals within a block, in the main thread only; yield a function to restore them."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = [(number, signal.getsignal(number)) for number in signals]

    def restore() -> None:
        for number, handler in before:
            signal.signal(number, handler)

    for number in signals:
        signal.signal(number, handle)
    try:
        yield restore
    finally:
        restore()
