"""Errors shown to the user, each one line: what is wrong and what to do next."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

Row = TypeVar("Row")


class SeqgenError(Exception):
    """A problem that the user can fix, described in one line. Exit code 1."""

    exit_code = 1


class UsageError(SeqgenError):
    """A wrong argument, flag or setting. Exit code 2."""

    exit_code = 2


class Interrupted(SeqgenError):  # noqa: N818
    """The user interrupted the work; the text says how to resume. Exit code 130."""

    exit_code = 130


@contextlib.contextmanager
def reporting_os_errors(what: str) -> Iterator[None]:
    """Turn an OSError into a one-line SeqgenError: `what`, then the reason.

    Raises:
        SeqgenError: in the place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise SeqgenError(f"{what}: {error.strerror or error}") from None


def did_you_mean(word: str, known: Iterable[str], meant: Mapping[str, str] | None = None) -> str:
    """Return `"; did you mean 'x'?"` for the name closest to `word`, or an empty string.

    `meant` has other words for some of the names.
    """
    names = {name: name for name in known}
    words = {other: own for other, own in (meant or {}).items() if own in names} | names
    near = difflib.get_close_matches(str(word), words, n=1, cutoff=0.5)
    return f"; did you mean {words[near[0]]!r}?" if near else ""


def first_line(error: BaseException) -> str:
    """Extract the informative line of an error, without PyTorch's stack frames.

    Of an error of the system that is its reason alone: messages name the file themselves.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    heading, *lines = (str(error).strip() or type(error).__name__).splitlines()
    return lines[0].strip() if lines and heading.endswith(":") else heading


def ran_out_of_memory(error: BaseException) -> bool:
    """Check whether an error means that memory is exhausted."""
    # PyTorch raises a plain RuntimeError if the machine, not a GPU, is out of memory.
    words = ("memory", "Storage size calculation overflowed", "invalid size")
    known = isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    return known or isinstance(error, MemoryError)


def look_up(kind: str, name: str, rows: Mapping[str, Row]) -> Row:
    """Look up the row called `name`; the error suggests the closest name.

    Raises:
        UsageError: there is none; says what it would be, and names the nearest.
    """
    if name not in rows:
        listed = f"; there are {', '.join(rows)}" if rows else ""
        hint = did_you_mean(name, rows) or listed
        raise UsageError(f"no {kind} is called {name!r}{hint}")
    return rows[name]
