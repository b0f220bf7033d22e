"""Work done by a second thread, in order, while the first goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

PENDING = 8


class Background:
    """One thread that does what it is given, in order: hashing, writing.

    Used as a context: leaving it waits for all that was given, and raises what went wrong there.
    At most `PENDING` pieces of work wait, so that memory is bounded.
    """

    def __enter__(self) -> Background:
        self._pool = ThreadPoolExecutor(1)
        self._pending: deque[Future[Any]] = deque()
        return self

    def do(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Give work; raise what went wrong with work given before."""
        self._pending.append(self._pool.submit(work, *arguments))
        while len(self._pending) > PENDING:
            self._pending.popleft().result()

    def wait(self) -> None:
        """Wait until all is done; raise what went wrong."""
        while self._pending:
            self._pending.popleft().result()

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._pool.shutdown(cancel_futures=True)
