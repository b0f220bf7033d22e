"""Overlap of a held-out part with the training data."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqgen.text.reading import Text, joined_blocks, lines
from seqgen.text.sources import content_of

if TYPE_CHECKING:
    from seqgen.text.pairs import Pairs
    from seqgen.text.split import Chunks

COMPARED = 1 << 20
# Shorter lines of a stream are often the same by chance.
LEAST = 30


@dataclass(frozen=True)
class Overlap:
    """Count of held-out items that also occur in the training data.

    Attributes:
        shared: held-out items that are in the training part.
        items: all held-out items.
        what: the items in the plural, such as "lines".
    """

    shared: int
    items: int
    what: str

    @classmethod
    def of(cls, train: Iterable[Hashable], held_out: Iterable[Hashable], what: str) -> Overlap:
        """Count the held-out items that also occur in the training part.

        Args:
            train: its items, read once.
            held_out: its items, held in memory.
            what: the items in the plural.
        """
        held = list(held_out)
        distinct = set(held)
        seen = {item for item in train if item in distinct}
        return cls(sum(item in seen for item in held), len(held), what)

    def warning(self, where: str) -> str | None:
        """Write a one-line warning about shared items, or None without any.

        Args:
            where: names the training part.
        """
        if not self.shared:
            return None
        return (
            f"{self.shared:,} of {self.items:,} held-out {self.what} "
            f"({self.shared / self.items:.1%}) "
            f"are in {where} too, so the validation loss is too optimistic"
        )


def overlap_of_lines(train: Chunks, held_out: Chunks, least: int = 1) -> Overlap:
    """Count the held-out lines that also occur in the training part, except blank ones.

    Lines of a stream may be of any length; two are the same if their first `COMPARED` characters
    are.

    Args:
        train: the training part.
        held_out: the held-out part.
        least: characters of the shortest lines that count.
    """
    held = (line for line in _beginnings(held_out()) if line.strip() and len(line) >= least)
    what = "lines" if least == 1 else f"lines of {least} characters or more"
    return Overlap.of(map(hash, _beginnings(train())), map(hash, held), what)  # needs less memory


def _beginnings(chunks: Iterable[str]) -> Iterator[str]:
    """Yield the first characters of each line, without newline."""
    held = ""
    for chunk in chunks:
        first, *others = chunk.split("\n")
        held += first[: COMPARED - len(held)]
        for line in others:
            yield held.rstrip("\r")
            held = line[:COMPARED]
    yield held.rstrip("\r")


def overlap_of_pairs(train: Pairs, held_out: Pairs) -> Overlap:
    """Count the held-out pairs whose source and target also occur in the training part."""
    return Overlap.of(contents_of_pairs(train), contents_of_pairs(held_out), "pairs")


def contents_of_pairs(pairs: Pairs) -> Iterator[tuple[str, str]]:
    """Yield a comparable key of each pair: both sides, with vectors as their hash."""
    return ((content_of(source), target) for source, target in pairs)


def mask_not_held_out(items: Iterable[Hashable], held_out: Iterable[Hashable]) -> np.ndarray:
    """Mark the items that do not occur in the held-out part, (N,) of bool."""
    held = set(held_out)
    return np.array([item not in held for item in items], dtype=bool)


def lines_not_held_out(text: Text, held_out: Chunks) -> Chunks:
    """Remove the held-out lines from a text; each call of the result rereads it."""
    every, held = (
        (line.rstrip("\r\n") for line in lines(chunks())) for chunks in (text.chunks, held_out)
    )
    keep = mask_not_held_out(every, held)
    return lambda: itertools.compress(lines(text.chunks()), keep)


def pairs_not_held_out(pairs: Pairs, held_out: Pairs) -> Pairs:
    """Remove the held-out pairs from pairs."""
    return pairs.some(mask_not_held_out(contents_of_pairs(pairs), contents_of_pairs(held_out)))


def stream_not_held_out(text: Text, held_out: Chunks) -> Chunks | None:
    """Remove all copies of the held-out part from a stream; each call rereads it.

    None if the stream has some lines of the held-out part, but not the whole part as it was: then
    it is unknown which of them are to be left out.
    """
    part = "".join(held_out())
    borders = [0]  # begin and end of each copy, between the start of the text and its end
    for begin in find_occurrences(text.chunks(), part):
        borders += [begin, begin + len(part)]
    if len(borders) == 1 and overlap_of_lines(text.chunks, held_out).shared:
        return None
    ranges = list(itertools.zip_longest(borders[::2], borders[1::2]))
    return lambda: itertools.chain.from_iterable(text.chunks(*between) for between in ranges)


def find_occurrences(chunks: Iterable[str], part: str) -> Iterator[int]:
    """Find all non-overlapping occurrences of a string in a text in pieces; yield offsets.

    A few times the length of the part is in memory.
    """
    if not part:
        return
    window, start = "", 0
    for block in joined_blocks(chunks, len(part)):
        window += block
        at = 0
        while (place := window.find(part, at)) >= 0:
            yield start + place
            at = place + len(part)
        at = max(at, len(window) - len(part) + 1)  # a copy may end in the next block
        start, window = start + at, window[at:]
