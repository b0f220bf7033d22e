"""Ctrl-C while a library trains a tokenizer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
# Seconds between two looks at whether the work is done; a signal is noticed at the next look.
INTERVAL = 0.1


def run_interruptible(work: Callable[[], T]) -> T:
    """Run `work` in a separate thread and return its result, so that Ctrl-C works at once.

    A signal is handled by the main thread, between two instructions of Python. A library that works
    outside of Python there would see it only at its end, and one that calls back into Python may
    swallow the exception and go on with half of its data. If the wait is interrupted, the thread
    is left behind: it does not keep the process alive.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(INTERVAL)
    return done.result()
