"""Errors shown to the user, each one line: what is wrong and what to do next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

Row = TypeVar("Row")
# From so many characters on, a word with one wrong character is close to the right one.
SHORTEST_CLOSE = 3


class SeqgenError(Exception):
    """A problem that the user can fix, described in one line. Exit code 1."""

    exit_code = 1


class UsageError(SeqgenError):
    """A wrong argument, flag or setting. Exit code 2."""

    exit_code = 2


class MissingPlugin(SeqgenError):  # noqa: N818
    """A stored model needs a plugin that is not installed."""


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


@contextlib.contextmanager
def reporting_unreadable(path: object) -> Iterator[None]:
    """Turn an OSError about a file to be read into a one-line SeqgenError.

    Raises:
        SeqgenError: in the place of an OSError.
    """
    try:
        yield
    except FileNotFoundError:
        raise SeqgenError(f"there is no file {path}") from None
    except OSError as error:
        raise SeqgenError(f"{path} cannot be read: {error.strerror or error}") from None


@contextlib.contextmanager
def telling_if_interrupted(saved: str) -> Iterator[None]:
    """Turn a KeyboardInterrupt into one line that says what is saved.

    Raises:
        Interrupted: in its place.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {saved}") from None


def did_you_mean(word: str, known: Iterable[str], meant: Mapping[str, str] | None = None) -> str:
    """Return `"; did you mean 'x'?"` for the name closest to `word`, or an empty string.

    `meant` has other words for some of the names.
    """
    names = {name: name for name in known}
    words = {other: own for other, own in (meant or {}).items() if own in names} | names
    near = closest(str(word), words)
    return f"; did you mean {words[near]!r}?" if near is not None else ""


def closest(word: str, known: Iterable[str]) -> str | None:
    """Find the name that somebody who typed `word` most probably meant; None if none is close.

    Case, and `-` for `_`, make no difference. A name is close if one edit in four characters leads
    from one to the other (or one edit, from three characters on), if `word` is the beginning of it,
    or if one of them consists of some of the words of the other, as `num-layers` and `layers`.
    """
    typed = _fold(word)
    near = [(rank, name) for name in known if (rank := _nearness(typed, _fold(name))) is not None]
    return min(near, key=lambda one: one[0])[1] if near else None


def _fold(name: str) -> str:
    return name.lower().replace("_", "-")


def _nearness(typed: str, name: str) -> tuple[int, int] | None:
    """Rank how close a name is to what was typed, the closest lowest; None if it is not."""
    longer, apart = max(len(typed), len(name)), abs(len(typed) - len(name))
    most = max(longer // 4, longer >= SHORTEST_CLOSE, typed == name)
    if apart <= most and (edits := _edits(typed, name)) <= most:
        return 0, edits
    if len(typed) >= SHORTEST_CLOSE and name.startswith(typed):
        return 1, apart
    parts, name_parts = set(typed.split("-")), set(name.split("-"))
    in_words = longer - apart >= SHORTEST_CLOSE and (parts < name_parts or name_parts < parts)
    return (2, apart) if in_words else None


def _edits(a: str, b: str) -> int:
    """Count the edits between two words: insertions, deletions, changes and swaps of neighbours."""
    before, row = [], list(range(len(b) + 1))
    for i, x in enumerate(a):
        last, before, row = before, row, [i + 1]
        for j, y in enumerate(b):
            edits = min(before[j + 1] + 1, row[j] + 1, before[j] + (x != y))
            if i and j and x == b[j - 1] and y == a[i - 1]:
                edits = min(edits, last[j - 1] + 1)
            row.append(edits)
    return row[-1]


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


def look_up(kind: str, name: str, rows: Mapping[str, Row], listing: str = "") -> Row:
    """Look up the row called `name`; the error suggests the closest name.

    Args:
        kind: what the rows are.
        name: the row's.
        rows: all there are.
        listing: the command that lists them; the error then names that, and not all rows.

    Raises:
        UsageError: there is none; says what it would be, and names the nearest.
    """
    if name not in rows:
        listed = f"; there are {', '.join(rows)}" if rows else ""
        hint = did_you_mean(name, rows) or (f"; {listing} lists all" if listing else listed)
        raise UsageError(f"no {kind} is called {name!r}{hint}")
    return rows[name]
