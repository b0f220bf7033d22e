"""A limit on the time in which one document is read."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from seqgen.limits import limit_of

VARIABLE = "SEQGEN_MAX_DOCUMENT_SECONDS"
DEFAULT_SECONDS = 60.0
# More for long documents: manuals of thousands of pages take minutes.
SECONDS_PER_MB = 30.0


class OutOfTimeError(BaseException):
    """A document takes too long. Packages that catch every `Exception` let it pass."""


def seconds_for(size: int) -> float:
    """Return how many seconds of processor time a document of a size in bytes may take.

    Raises:
        UsageError: the variable is no number above 0.
    """
    return limit_of(VARIABLE, DEFAULT_SECONDS, "seconds") + SECONDS_PER_MB * size / 1e6


@contextlib.contextmanager
def processor_time_at_most(seconds: float) -> Iterator[None]:
    """Raise `OutOfTimeError` in a block that takes more processor time.

    There is no limit on Windows, nor in other threads than the main one, where Python handles no
    signals.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "setitimer") or not is_main:
        yield
        return

    def stop(*signalled: object) -> None:
        raise OutOfTimeError

    handler = signal.signal(signal.SIGPROF, stop)
    try:
        # Again each second, should a package have dropped the first one.
        signal.setitimer(signal.ITIMER_PROF, seconds, 1)
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
