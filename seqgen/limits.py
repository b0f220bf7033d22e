"""Limits on what is read into memory at once, and on the time of what strangers give.

Texts are read in pieces. What has to be in memory whole (a line where lines are the unit, a word,
a text that a command compares or continues) has a limit, which `SEQGEN_MAX_LINE_MB` sets.
Options that strangers give a server are prepared in bounded time (`seconds_at_most`).
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import IO

from seqgen.errors import SeqgenError, UsageError

VARIABLE = "SEQGEN_MAX_LINE_MB"
DEFAULT_MB = 64.0
MB = 1_000_000
# When this thread gives up, in its own processor time; patterns and templates look at it.
gives_up: ContextVar[float] = ContextVar("gives_up", default=math.inf)


@contextlib.contextmanager
def seconds_at_most(seconds: float) -> Iterator[None]:
    """Limit the processor time of a block: what takes long in it looks at `gives_up`."""
    before = gives_up.set(time.thread_time() + seconds)
    try:
        yield
    finally:
        gives_up.reset(before)


def limit_of(variable: str, default: float, unit: str) -> float:
    """Read a limit from an environment variable, which need not be set.

    Raises:
        UsageError: it is no number above 0; calls it a number of `unit`.
    """
    given = os.environ.get(variable) or str(default)
    try:
        limit = float(given)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise UsageError(f"{variable} must be a number of {unit} above 0, not {given!r}")
    return limit


def max_line_mb() -> float:
    """Return the limit on a line, in megabytes of UTF-8; see `limit_of`."""
    return limit_of(VARIABLE, DEFAULT_MB, "megabytes")


def max_line_bytes() -> int:
    """Return the limit on a line, in bytes of UTF-8."""
    return int(max_line_mb() * MB)


def too_long(what: str) -> SeqgenError:
    """Build the error that `what` is longer than the limit on a line."""
    return SeqgenError(
        f"{what} is longer than {max_line_mb():g} MB, the most that is read at once; "
        f"if there is enough memory, set {VARIABLE} higher"
    )


def utf8_size(text: str) -> int:
    """Count the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def require_within_limit(text: str, what: str) -> None:
    """Refuse a text longer than the limit on a line.

    Raises:
        SeqgenError: it is; calls it `what`.
    """
    limit = max_line_bytes()
    if 4 * len(text) > limit and utf8_size(text) > limit:
        raise too_long(what)


def whole_lines(chunks: Iterable[str], name: str = "the text") -> Iterator[str]:
    """Re-cut a text so that every piece but the last ends with a newline.

    Args:
        chunks: the text in pieces cut anywhere.
        name: what an error calls it.

    Raises:
        SeqgenError: a line is longer than the limit; names it.
    """
    limit, number, size = max_line_bytes(), 1, 0
    held: list[str] = []  # of a line that has begun: `size` bytes
    for chunk in chunks:
        if size + 4 * len(chunk) > limit:  # no character has more bytes
            sizes = [utf8_size(line) for line in chunk.split("\n")]
            sizes[0] += size
            place = next((at for at, length in enumerate(sizes) if length > limit), None)
            if place is not None:
                raise too_long(f"{name}, line {number + place}")
        end = chunk.rfind("\n") + 1
        if end:
            yield "".join(held) + chunk[:end]
            held, size = [], 0
            number += chunk.count("\n")
        if end < len(chunk):
            held.append(chunk[end:])
            size += utf8_size(chunk[end:])
    if held:
        yield "".join(held)


def read_whole(chunks: Iterable[str], name: str) -> str:
    """Join a text in memory, up to the limit on a line.

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
    """Yield the lines of a binary file with their newlines, up to the limit on a line.

    Raises:
        SeqgenError: a line is longer than the limit.
    """
    limit = max_line_bytes()
    for number, line in enumerate(iter(lambda: file.readline(limit + 1), b""), start=1):
        if len(line) > limit:
            raise too_long(f"{name}, line {number}")
        yield line
