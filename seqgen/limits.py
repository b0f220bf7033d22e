"""The most that is read into memory at once, so that any file is read in bounded memory; and time.

Texts are read in pieces. What has to be in memory whole (a line where lines are the unit, a word,
a text that a command compares or continues) has a limit, which `SEQGEN_MAX_LINE_MB` sets.
Options that strangers give a server are prepared in bounded time (`seconds_at_most`).
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import IO

from seqgen.errors import SeqgenError, UsageError

VARIABLE = "SEQGEN_MAX_LINE_MB"
DEFAULT_MB = 64.0
MB = 1_000_000
# When this thread gives up what it prepares, in its own processor time.
_gives_up: ContextVar[float] = ContextVar("gives_up", default=math.inf)


@contextlib.contextmanager
def seconds_at_most(seconds: float) -> Iterator[None]:
    """Refuse options, such as patterns, that take more of this thread's time to prepare."""
    before = _gives_up.set(time.thread_time() + seconds)
    try:
        yield
    finally:
        _gives_up.reset(before)


def require_time() -> None:
    """Raise a `UsageError` if that time has passed."""
    limit = _gives_up.get()
    if limit != math.inf and time.thread_time() >= limit:
        raise UsageError("it takes too long; write a simpler one")


def max_line_mb() -> float:
    """Return the limit in megabytes of UTF-8.

    Raises:
        UsageError: the variable is no number above 0.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        return DEFAULT_MB
    try:
        limit = float(given)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise UsageError(f"{VARIABLE} must be a number of megabytes above 0, not {given!r}")
    return limit


def max_line_bytes() -> int:
    """Return the limit in bytes of UTF-8."""
    return int(max_line_mb() * MB)


def too_long(what: str) -> SeqgenError:
    """Return the error that `what` is longer than the limit."""
    return SeqgenError(
        f"{what} is longer than {max_line_mb():g} MB, the most that is read at once; "
        f"if there is enough memory, set {VARIABLE} higher"
    )


def utf8_size(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def require_short(text: str, what: str) -> None:
    """Refuse a text that is longer than the limit.

    Raises:
        SeqgenError: it is; calls it `what`.
    """
    limit = max_line_bytes()
    if 4 * len(text) > limit and utf8_size(text) > limit:
        raise too_long(what)


class LineBuffer:
    """Holds the pieces of a line until it ends, and counts the lines.

    Args:
        name: what an error calls the text.
    """

    def __init__(self, name: str) -> None:
        self._name, self._number = name, 1
        self._limit = max_line_bytes()
        self._pieces: list[str] = []
        self._bytes = 0

    def add(self, piece: str) -> None:
        """Append a piece of the line.

        Raises:
            SeqgenError: the line is longer than the limit.
        """
        self._pieces.append(piece)
        self._bytes += utf8_size(piece)
        if self._bytes > self._limit:
            raise self._too_long()

    def take(self) -> str:
        """Return the line, which ends here, and begin the next."""
        text = "".join(self._pieces)
        self._pieces, self._bytes = [], 0
        self._number += 1
        return text

    def ended(self, lines: Sequence[str]) -> Sequence[str]:
        """Return lines that came whole, which are counted.

        Raises:
            SeqgenError: one of them is longer than the limit.
        """
        longest = self._limit // 4  # as many characters never have more bytes
        if sum(map(len, lines)) <= longest:
            self._number += len(lines)
            return lines
        for line in lines:
            if len(line) > longest and utf8_size(line) > self._limit:
                raise self._too_long()
            self._number += 1
        return lines

    def block(self, text: str) -> str:
        """Return lines that came whole with their newlines, as `ended` does."""
        if len(text) > self._limit // 4:
            self.ended(text.split("\n")[:-1])
        else:
            self._number += text.count("\n")
        return text

    def _too_long(self) -> SeqgenError:
        return too_long(f"{self._name}, line {self._number}")


def whole(chunks: Iterable[str], name: str) -> str:
    """Return a text that has to be in memory whole.

    Raises:
        SeqgenError: it is longer than the limit.
    """
    limit, size, held = max_line_bytes(), 0, []
    for chunk in chunks:
        held.append(chunk)
        size += utf8_size(chunk)
        if size > limit:
            raise too_long(name)
    return "".join(held)


def byte_lines(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of a binary file, with their ends.

    Raises:
        SeqgenError: a line is longer than the limit.
    """
    limit = max_line_bytes()
    for number, line in enumerate(iter(lambda: file.readline(limit + 1), b""), start=1):
        if len(line) > limit:
            raise too_long(f"{name}, line {number}")
        yield line
