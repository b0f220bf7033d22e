"""Work that a second thread does, in order, while the first continues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

PENDING = 8


class Background:
    """One thread that does tasks in order, such as hashing and writing.

    Use it as a context: leaving it waits for all tasks, and raises the error of one that failed.
    At most `PENDING` tasks wait, so that memory is bounded.
    """

    def __enter__(self) -> Background:
        self._pool = ThreadPoolExecutor(1)
        self._pending: deque[Future[Any]] = deque()
        return self

    def do(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Add a task; raise the error of an earlier one that failed."""
        self._pending.append(self._pool.submit(work, *arguments))
        while len(self._pending) > PENDING:
            self._pending.popleft().result()

    def wait(self) -> None:
        """Wait until all tasks are done; raise the error of one that failed."""
        while self._pending:
            self._pending.popleft().result()

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._pool.shutdown(cancel_futures=True)
