"""Suffix-array index of a large text, memory-mapped, to find passages that occur in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqgen import store
from seqgen.files import Piece, json_bytes, parse_json
from seqgen.packages import require_packages

# Bytes that are compared at once, and of a match that the search for all places follows.
WIDTH, MOST = 8, 1024
# Places of a text that are searched side by side.
BLOCK = 1 << 16
# Two bytes that UTF-8 never has: the end of a searched text, and padding behind it.
END = b"\xff"
EMPTY = bytes(WIDTH)


def order_of(text: bytes) -> np.ndarray:
    """Build the suffix array of a text, (N,): the starts of its sorted suffixes.

    libdivsufsort makes it, in four bytes for each byte of the text and no other memory to speak of.

    Raises:
        SeqgenError: pydivsufsort is not installed.
    """
    require_packages("a suffix array of the text", "pydivsufsort")
    from pydivsufsort import divsufsort

    return divsufsort(text) if text else np.zeros(0, np.int32)


def kept_index(
    about: dict[str, Any], text: Callable[[], tuple[bytes, dict[str, Any]]]
) -> tuple[SuffixIndex, dict[str, Any]]:
    """Load the index of a text from the cache, or build it; return its stored data too.

    Args:
        about: what identifies the text, as JSON can hold it.
        text: reads it, as UTF-8, and what is kept beside it.

    Raises:
        SeqgenError: the cache cannot be written, or the text cannot be read.
    """

    def content() -> dict[str, tuple[Piece, ...]]:
        raw, beside = text()
        order = memoryview(order_of(raw))
        return {"order": (order,), "text": (raw, EMPTY), "json": (json_bytes(beside),)}

    texts, orders, facts = store.kept_index_files(about, content, "text", "order", "json")
    return SuffixIndex.open(texts, orders), parse_json(facts.read_bytes())


@dataclass(frozen=True)
class SuffixIndex:
    """Text in UTF-8 with its suffix array.

    Attributes:
        text: (N + 8,) uint8; the last 8 are padding.
        order: (N,) where the suffixes begin, in their order.
    """

    text: np.ndarray
    order: np.ndarray

    @classmethod
    def open(cls, text_file: Path, order_file: Path) -> SuffixIndex:
        """Map the files of a text, which ends with `EMPTY`, and of its suffix array."""
        text = np.memmap(text_file, np.uint8, "r").view(np.ndarray)
        size = text.size - WIDTH
        kind = np.int32 if size < 1 << 31 else np.int64
        order = np.memmap(order_file, kind, "r").view(np.ndarray) if size else np.zeros(0, kind)
        return cls(text, order)

    @property
    def size(self) -> int:
        """Length of the text in bytes."""
        return self.text.size - WIDTH

    def bytes_at(self, place: int, length: int) -> bytes:
        """Read bytes of the text at an offset."""
        return self.text[place : min(place + length, self.size)].tobytes()

    def suffixes_with(self, part: bytes) -> tuple[int, int]:
        """Find the range of `order` whose suffixes begin with `part`."""

        def begins(at: int) -> bytes:
            return self.bytes_at(at, len(part))

        begin = bisect_left(self.order, part, key=begins)
        return begin, bisect_right(self.order, part, begin, key=begins)

    def first(self, part: bytes) -> int | None:
        """Find the first occurrence of `part` in the text; None if there is none."""
        begin, end = self.suffixes_with(part)
        return int(self.order[begin:end].min()) if begin < end else None

    def matches(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        """Compute for each byte of each text the length of the longest match from there on.

        At most `MOST` are followed.
        """
        joined = b"".join(text + END for text in texts)
        lengths = np.concatenate(
            [
                self._matches(joined, np.arange(begin, min(begin + BLOCK, len(joined))))
                for begin in range(0, len(joined), BLOCK)
            ]
            or [np.zeros(0, np.int64)]
        )
        ends = np.cumsum([len(text) + 1 for text in texts])
        return [part[:-1] for part in np.split(lengths, ends[:-1])] if texts else []

    def _matches(self, query: bytes, places: np.ndarray) -> np.ndarray:
        """Compute the longest match lengths at `places` (P,), by binary search."""
        if not self.size:
            return np.zeros(places.size, np.int64)
        text = np.lib.stride_tricks.sliding_window_view(self.text, WIDTH)
        padded = np.frombuffer(query + END * (MOST + WIDTH), np.uint8)
        sought = np.lib.stride_tricks.sliding_window_view(padded, WIDTH)
        low, high = np.full(places.size, -1), np.full(places.size, self.size)
        # What the suffixes at both ends have in common with the query: all between have so much.
        common = np.zeros((2, places.size), np.int64)
        while (searched := np.flatnonzero(high - low > 1)).size:
            middle = (low[searched] + high[searched]) // 2
            suffixes, queries = self.order[middle].astype(np.int64), places[searched]
            length = common[:, searched].min(0)
            larger = np.zeros(searched.size, bool)  # whether the query is
            waiting = np.arange(searched.size)
            while waiting.size:
                at = length[waiting]
                ours = text[np.minimum(suffixes[waiting] + at, self.size)]  # (W, 8)
                theirs = sought[queries[waiting] + at]
                differs = ours != theirs
                same = np.where(differs.any(1), differs.argmax(1), WIDTH)
                length[waiting] = at = np.minimum(at + same, self.size - suffixes[waiting])
                at_end = at == self.size - suffixes[waiting]
                row = np.minimum(same, WIDTH - 1)[:, None]
                greater = np.take_along_axis(theirs > ours, row, 1)[:, 0]
                larger[waiting] = at_end | greater
                waiting = waiting[(same == WIDTH) & ~at_end & (at < MOST)]
            low[searched[larger]], high[searched[~larger]] = middle[larger], middle[~larger]
            common[0, searched[larger]] = length[larger]
            common[1, searched[~larger]] = length[~larger]
        return common.max(0)

    def longest(self, text: bytes, lengths: np.ndarray) -> tuple[int, int]:
        """Find the longest passage of a text that occurs in this one: start and length.

        Args:
            text: it.
            lengths: its `matches`; where these stop at `MOST`, the whole match is looked for.
        """
        if not lengths.size:
            return 0, 0
        start, longest = int(lengths.argmax()), int(lengths.max())
        if longest < MOST:
            return start, longest
        full = np.flatnonzero(lengths >= MOST)
        runs = np.split(full, np.flatnonzero(np.diff(full) > 1) + 1)
        longest = 0
        for run in runs:
            for begin in run.tolist():
                if int(run[-1]) - begin + MOST <= longest:
                    break
                if longest and self.first(text[begin : begin + longest + 1]) is None:
                    continue
                start, longest = begin, self._whole_match(text[begin:])
        return start, longest

    def _whole_match(self, part: bytes) -> int:
        place, _ = self.suffixes_with(part)
        longest = 0
        for at in self.order[max(0, place - 1) : place + 1].tolist():
            other = np.frombuffer(self.bytes_at(at, len(part)), np.uint8)
            differs = other != np.frombuffer(part, np.uint8)[: other.size]
            longest = max(longest, int(differs.argmax()) if differs.any() else other.size)
        return longest
