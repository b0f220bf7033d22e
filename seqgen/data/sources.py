"""What targets are written from: token ids or vectors, one source per target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Source:
    """Some sources side by side, padded on the right.

    Attributes:
        values: (S, L) int64, or (S, L, F) float32; zero past a source's length.
        lengths: (S,) int64, each at least 1 and at most L.
    """

    values: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, rows: slice) -> Source:
        """Return some of the sources, padded to the longest of them."""
        lengths = self.lengths[rows]
        return Source(self.values[rows, : lengths.max(initial=0)], lengths)


@dataclass(frozen=True)
class Sources(ABC):
    """Any number of sources, one after the other, in memory or mapped from a file.

    Attributes:
        values: every source's values, the first dimension being theirs in order.
        ends: (D,) int64, where each source ends in `values`.
        oov: how many values are `<unk>`.
    """

    values: np.ndarray
    ends: np.ndarray
    oov: int = 0

    def __len__(self) -> int:
        return len(self.ends)

    @cached_property
    def starts(self) -> np.ndarray:
        """(D,) int64: where each source begins in `values`."""
        return starts_of(self.ends)

    @cached_property
    def lengths(self) -> np.ndarray:
        """(D,) int64: how long each source is."""
        return self.ends - self.starts

    def rows(self, which: Sequence[int] | np.ndarray) -> Source:
        """Return the sources of these numbers side by side, in that order."""
        which = np.asarray(which, dtype=np.int64)
        lengths = self.lengths[which]
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]  # (S, L)
        at = np.where(inside, self.starts[which, None] + columns, 0)
        return Source(self._padded(self.values[at], inside), lengths)

    @staticmethod
    @abstractmethod
    def _padded(values: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """Return `values` (S, L, ...) with zeros where not `inside` (S, L), in a model's type."""

    def take(self, which: np.ndarray) -> Sources:
        """Return the sources of these numbers alone, in that order."""
        values, ends = take_spans(self.values, self.ends, which)
        return replace(self, values=values, ends=ends)


@dataclass(frozen=True)
class TokenSources(Sources):
    """Sequences of token ids: `values` is (N,), of any integer type."""

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> TokenSources:
        """Return the sources that are these sequences of ids, each of at least one."""
        ends = np.cumsum([len(ids) for ids in sequences], dtype=np.int64)
        return cls(np.concatenate([np.zeros(0, np.int64), *map(np.asarray, sequences)]), ends)

    @staticmethod
    def _padded(values: np.ndarray, inside: np.ndarray) -> np.ndarray:
        return np.where(inside, values, 0).astype(np.int64)


@dataclass(frozen=True)
class VectorSources(Sources):
    """Sequences of vectors: `values` is (N, F), of any floating type."""

    @classmethod
    def of(cls, vectors: np.ndarray) -> VectorSources:
        """Return a source for each vector of (D, F), or for each sequence or grid of (D, ..., F).

        A grid is read row by row.
        """
        flat = vectors.reshape(-1, vectors.shape[-1])  # (N, F)
        count = len(vectors)
        each = len(flat) // max(1, count)
        return cls(flat, np.arange(1, count + 1, dtype=np.int64) * each)

    @staticmethod
    def _padded(values: np.ndarray, inside: np.ndarray) -> np.ndarray:
        return np.where(inside[..., None], values, 0).astype(np.float32)


def handles_of(sequences: Sequence[tuple[int, ...]]) -> tuple[TokenSources, list[int]]:
    """Return the distinct sources among sequences of ids, and each one's number among them."""
    numbers = {ids: number for number, ids in enumerate(dict.fromkeys(sequences))}
    return TokenSources.of(list(numbers)), [numbers[ids] for ids in sequences]


def starts_of(ends: np.ndarray) -> np.ndarray:
    """Return where spans begin that follow one another and end at `ends`, (D,) int64."""
    return np.concatenate([[0], ends[:-1]]).astype(np.int64)


def take_spans(
    values: np.ndarray, ends: np.ndarray, which: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of some spans, one after the other, and where each ends among them.

    Args:
        values: (N, ...), the spans one after the other.
        ends: (D,), where each ends.
        which: (E,) of int, the spans to take, in this order.
    """
    begin, end = starts_of(ends)[which], ends[which]
    new_ends = np.cumsum(end - begin, dtype=np.int64)
    # Each value's place: its span's beginning, moved by where that stands among those taken.
    shift = np.repeat(begin - starts_of(new_ends), end - begin)
    return values[np.arange(shift.size) + shift], new_ends
