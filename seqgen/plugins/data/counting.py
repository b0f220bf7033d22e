"""Counts of words and of lines in bounded memory: exact up to a limit, estimates beyond it.

Beyond the limit, a share of the words (or lines) is counted: those whose hash is below a bound,
which is halved whenever there are too many again. All copies of a word are counted or none is, so
what is true of this share estimates what is true of all (adaptive sampling, Flajolet 1990).
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

# Distinct words, and compared lines, that are kept.
MOST_WORDS, MOST_LINES = 1 << 20, 1 << 24
# The number of each point of a curve that is kept is at least so many times that of the one before.
CURVE_STEP = 1.001
# Hashes that decide what is counted are below this.
EVERY = 1 << 32


def sampling_hash(text: str) -> int:
    """Hash a text to a number below `EVERY`, the same in every process."""
    return zlib.crc32(text.encode())


class WordCounts:
    """Counts the words of a text.

    Words outside the share that is counted exactly are kept as long as they are frequent, so the
    highest counts stay right (lossy counting, Manku and Motwani 2002).

    Args:
        limit: of distinct words in memory.

    Attributes:
        read: words so far.
        counts: of each word in memory.
    """

    def __init__(self, limit: int = MOST_WORDS) -> None:
        self.read = 0
        self.counts: Counter[str] = Counter()
        self._limit, self._below = limit, EVERY
        self._sampled = self._rare = 0

    def add(self, words: Sequence[str]) -> None:
        """Count some words."""
        self.read += len(words)
        if self._below < EVERY:
            new = {word for word in words if word not in self.counts}
            self._sampled += sum(map(self.is_sampled, new))
        self.counts.update(words)
        if len(self.counts) > self._limit:
            self._forget()

    @property
    def share(self) -> float:
        """The share of distinct words that is counted exactly."""
        return self._below / EVERY

    @property
    def distinct(self) -> int:
        """Number of distinct words; an estimate if `share` is below 1."""
        return len(self.counts) if self._below == EVERY else round(self._sampled / self.share)

    def is_sampled(self, word: str) -> bool:
        """Check whether a word is one of those that are counted exactly."""
        return self._below == EVERY or sampling_hash(word) < self._below

    def sampled(self) -> Iterator[str]:
        """Yield the words that are counted exactly."""
        return filter(self.is_sampled, self.counts)

    def highest(self) -> list[int]:
        """List the counts of the most frequent words, the highest first; of all up to the limit."""
        return sorted((n for n in self.counts.values() if n > self._rare), reverse=True)

    def _forget(self) -> None:
        """Halve the share until half of the limit is enough; forget rare words outside it."""
        sampled = list(self.sampled())
        while len(sampled) > self._limit // 2:
            self._below //= 2
            sampled = list(filter(self.is_sampled, sampled))
        self._sampled = len(sampled)
        kept = {word: self.counts[word] for word in sampled}
        others = np.array([n for word, n in self.counts.items() if word not in kept])
        if others.size > self._limit // 4:
            place = others.size - self._limit // 4
            self._rare = max(self._rare, int(np.partition(others, place)[place]))
        frequent = {word: n for word, n in self.counts.items() if n > self._rare}
        self.counts = Counter(kept | frequent)


class LineCounts:
    """Counts copies of lines by 63 bits of hash.

    Args:
        limit: of hashes in memory, of 8 bytes each; at most five times as much is used at the end.

    Attributes:
        total: lines that were counted.
        first: (D,) places of the distinct ones among these, where each occurs first, ascending.
        counts: (D,) how often each occurs.
        marked: (D,) whether each is marked.
    """

    def __init__(self, limit: int = MOST_LINES) -> None:
        self._limit, self._below = limit, EVERY
        self._hashes = array("Q")

    def add(self, line: str, marked: bool) -> None:
        """Count a line.

        Args:
            line: it, without its end.
            marked: whether it is; the same for all its copies.
        """
        known = sampling_hash(line)
        if known < self._below:
            self._hashes.append(known << 32 | hash(line) & 0xFFFFFFFE | marked)
            if len(self._hashes) > self._limit:
                self._below //= 2
                hashes = np.frombuffer(self._hashes, np.uint64)
                self._hashes = array("Q", hashes[hashes >> 32 < self._below].tobytes())

    def is_sampled(self, line: str) -> bool:
        """Check whether a line is one of those that are counted."""
        return self._below == EVERY or sampling_hash(line) < self._below

    def finish(self) -> None:
        """Count the copies of each line; fill the attributes."""
        hashes = np.frombuffer(self._hashes, np.uint64)
        self.total = hashes.size
        distinct, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        order = np.argsort(first)
        self.first, self.counts = first[order], counts[order]
        self.marked = (distinct[order] & 1).astype(bool)


class Curve:
    """Points of a curve, by their number, of which ever fewer are kept as there are more."""

    def __init__(self) -> None:
        self._seen = 0
        self._numbers: list[int] = []
        self._points: list[tuple[int, int]] = []
        self._last = 0, 0

    def add(self, x: int, y: int) -> None:
        """Add the next point; points at 0 do not count."""
        if not x:
            return
        self._seen += 1
        self._last = x, y
        if not self._numbers or self._seen >= self._numbers[-1] * CURVE_STEP:
            self._numbers.append(self._seen)
            self._points.append(self._last)

    def spread(self, count: int) -> list[tuple[int, int]]:
        """Choose `count` points or fewer, with numbers at equal distances of their logarithms."""
        if not self._seen:
            return []
        numbers, points = [*self._numbers, self._seen], [*self._points, self._last]
        wanted = np.unique(np.geomspace(1, self._seen, count).astype(int))
        chosen = np.unique(np.searchsorted(numbers, wanted))
        return [points[place] for place in chosen.tolist()]
