"""What goes to standard output, and what to standard error."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import stat
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from seqgen.errors import SeqgenError

if TYPE_CHECKING:
    from rich.console import Console


# Off a terminal no column is shortened or wrapped to fit.
ANY_WIDTH = 1 << 16


def is_terminal(stream: IO[Any] | None) -> bool:
    """Return whether a person looks at this stream."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def say(message: str) -> None:
    """Write a line to standard error."""
    if sys.stderr is not None:
        sys.stderr.write(message + "\n")
        sys.stderr.flush()


def put(text: str) -> None:
    """Write data to standard output, now.

    Raises:
        SeqgenError: there is no standard output.
    """
    if sys.stdout is None:
        raise SeqgenError("there is no standard output to write to")
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


def put_record(record: Any) -> None:
    """Write a dataclass, or a dictionary, as a line of JSON; what is not finite is null."""
    values = record if isinstance(record, dict) else dataclasses.asdict(record)
    put(json.dumps(_finite(values), ensure_ascii=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def one_line(text: str) -> str:
    r"""Write a newline as `\n` and a backslash as `\\`, so that a text takes one line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def shown(text: str, heading: str) -> str:
    """Return one of several texts as standard output takes it: a line, or a headed block."""
    if not is_terminal(sys.stdout):
        return one_line(text) + "\n"
    return f"── {heading} ──\n{text}\n\n"


def unescape(text: str) -> str:
    r"""Read `\n`, `\t` and `\\` in an argument."""
    pairs = {"n": "\n", "t": "\t", "\\": "\\"}
    out, rest = "", text
    while "\\" in rest:
        before, _, rest = rest.partition("\\")
        out += before + pairs.get(rest[:1], "\\" + rest[:1])
        rest = rest[1:]
    return out + rest


def console(stream: IO[str]) -> Console:
    """Return a rich console; it has colour and width only where `stream` is a terminal.

    What it prints is text, and no markup: a file may be called `[b].txt`.
    """
    from rich.console import Console

    plain = not is_terminal(stream)
    return Console(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=plain,
        width=ANY_WIDTH if plain else None,
    )


def piped_input() -> IO[bytes] | None:
    """Return standard input if something is to be read from it: a pipe, a file, a socket.

    None for no input, a terminal, or a character device such as /dev/null.
    """
    if sys.stdin is None or sys.stdin.closed:
        return None
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return None
    return None if stat.S_ISCHR(mode) else sys.stdin.buffer


def input_bytes() -> Iterator[bytes]:
    """Yield standard input in blocks, as they come.

    Raises:
        SeqgenError: there is no standard input.
    """
    if sys.stdin is None:
        raise SeqgenError("there is no standard input to read")
    # Past Python's buffer, whose lock a thread that waits for input would hold when the program
    # ends: Python then aborts.
    descriptor = sys.stdin.fileno()
    yield from iter(lambda: os.read(descriptor, 1 << 20), b"")
