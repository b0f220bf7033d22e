"""The limit on the time in which a server prepares patterns; see `limits.seconds_at_most`."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator

from seqgen.errors import UsageError
from seqgen.limits import gives_up


@contextlib.contextmanager
def outside_time_limit() -> Iterator[None]:
    """Leave work out of the time limit that depends on the model alone, and is done once."""
    begin = time.thread_time()
    try:
        yield
    finally:
        gives_up.set(gives_up.get() + time.thread_time() - begin)


def require_time() -> None:
    """Raise a `UsageError` if the time limit of `seconds_at_most` has passed."""
    limit = gives_up.get()
    if limit != math.inf and time.thread_time() >= limit:
        raise UsageError("it takes too long; write a simpler one")
