"""Sources of translation: token ids or vectors, one source per target."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from seqgen.errors import SeqgenError


@dataclass(frozen=True)
class Source:
    """A batch of sources, padded on the right.

    Attributes:
        values: (S, L) int64, or (S, L, F) float32; zero past a source's length.
        lengths: (S,) int64, each at least 1 and at most L.
    """

    values: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, rows: slice, trim: bool = True) -> Source:
        """Slice rows of the batch; `trim` also removes unneeded padding."""
        lengths = self.lengths[rows]
        width = lengths.max(initial=0) if trim else self.values.shape[1]
        return Source(self.values[rows, :width], lengths)


@dataclass(frozen=True)
class Sources(ABC):
    """Base class: many sources in one array, in memory or memory-mapped.

    Attributes:
        values: what the sources are spans of, along the first dimension.
        ends: (D,) int64, where each source ends in `values`.
        oov: how many values are `<unk>`.
        begins: (D,) int64, where each begins; None if they follow one another from the start.
        framing: how many values a source has besides its content, such as its EOS.
    """

    values: np.ndarray
    ends: np.ndarray
    oov: int = 0
    begins: np.ndarray | None = None
    framing: ClassVar[int] = 0

    def __len__(self) -> int:
        return len(self.ends)

    @cached_property
    def starts(self) -> np.ndarray:
        """(D,) int64: start of each source in `values`."""
        return starts_of(self.ends) if self.begins is None else self.begins

    @cached_property
    def lengths(self) -> np.ndarray:
        """(D,) int64: length of each source."""
        return self.ends - self.starts

    def rows(self, which: Sequence[int] | np.ndarray) -> Source:
        """Build the padded batch of the sources of these numbers."""
        which = np.asarray(which, dtype=np.int64)
        lengths = self.lengths[which]
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]  # (S, L)
        at = np.where(inside, self.starts[which, None] + columns, 0)
        return Source(self._padded(self.values[at], inside), lengths)

    @staticmethod
    @abstractmethod
    def _padded(values: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """Zero `values` (S, L, ...) outside the mask `inside` (S, L); convert to model input."""

    def take(self, which: np.ndarray) -> Sources:
        """Select sources by number, without copying values."""
        return replace(self, ends=self.ends[which], begins=self.starts[which])


@dataclass(frozen=True)
class TokenSources(Sources):
    """Sources of token ids, each ending with EOS: `values` is (N,), any integer type.

    Some begin with a token of their own, so that `framing` is 2.
    """

    framing: int = 1

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> TokenSources:
        """Build sources from non-empty sequences of ids."""
        ends = np.cumsum([len(ids) for ids in sequences], dtype=np.int64)
        return cls(np.concatenate([np.zeros(0, np.int64), *map(np.asarray, sequences)]), ends)

    @staticmethod
    def _padded(values: np.ndarray, inside: np.ndarray) -> np.ndarray:
        return np.where(inside, values, 0).astype(np.int64)


@dataclass(frozen=True)
class VectorSources(Sources):
    """Sources of vectors: `values` is (N, F), any real type."""

    @property
    def features(self) -> int:
        """F, the width of a vector."""
        return self.values.shape[-1]

    @classmethod
    def of(cls, vectors: np.ndarray) -> VectorSources:
        """Build one source per vector of (D, F), or per sequence or grid of (D, ..., F).

        A grid is read row by row.
        """
        flat = vectors.reshape(-1, vectors.shape[-1])  # (N, F)
        count = len(vectors)
        each = len(flat) // max(1, count)
        return cls(flat, np.arange(1, count + 1, dtype=np.int64) * each)

    @classmethod
    def join(cls, sequences: Sequence[np.ndarray]) -> VectorSources:
        """Build sources from sequences of vectors, (L, F) each."""
        ends = np.cumsum([len(vectors) for vectors in sequences], dtype=np.int64)
        return cls(np.concatenate(sequences), ends)

    def joined(self) -> dict[str, np.ndarray]:
        """Return the concatenated vectors of all sources, and the sources' lengths.

        These are the tensors of a file whose sources differ in length; see `text.vector_files`.
        """
        values, _ = take_spans(self.values, self.starts, self.ends, np.arange(len(self)))
        return {"values": values.astype(values.dtype.newbyteorder("<")), "lengths": self.lengths}

    @staticmethod
    def _padded(values: np.ndarray, inside: np.ndarray) -> np.ndarray:
        return np.where(inside[..., None], values, 0).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Vectors:
    """One source of vectors, used where text models have a source line.

    Attributes:
        values: (L, F), of real numbers.
        name: what records call it, such as `scenes.npy[3]`.
    """

    values: np.ndarray
    name: str = ""

    @property
    def features(self) -> int:
        """F, the width of a vector."""
        return self.values.shape[-1]

    @cached_property
    def digest(self) -> str:
        """Hash of the vectors in the model's number format."""
        read = np.ascontiguousarray(self.values, dtype="<f4")
        return hashlib.sha256(str(read.shape).encode() + read.tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vectors) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        return self.name


def deduplicate_sources(
    sequences: Sequence[tuple[int, ...] | Vectors],
) -> tuple[Sources, list[int]]:
    """Deduplicate sources; return the distinct ones, and the index of each source among them.

    Args:
        sequences: of ids, or of vectors: all of one kind.
    """
    numbers = {source: number for number, source in enumerate(dict.fromkeys(sequences))}
    handles = [numbers[source] for source in sequences]
    if any(isinstance(source, Vectors) for source in numbers):
        return VectorSources.join([source.values for source in numbers]), handles
    return TokenSources.of(list(numbers)), handles


def features_of(source: str | Vectors) -> int | None:
    """Return the width of a vector source; None for text."""
    return source.features if isinstance(source, Vectors) else None


def content_of(source: str | Vectors) -> str:
    """Return a comparable key of a source: its text, or a hash of its vectors."""
    return source.digest if isinstance(source, Vectors) else source


def require_equal_widths(name: str, expected: int | None, given: int | None) -> None:
    """Refuse vector sources whose width differs from the model's.

    Args:
        name: of the model.
        expected: the width of the vectors that it reads; None for text.
        given: the same of the sources.

    Raises:
        SeqgenError: they are of another kind, or of another width.
    """
    if expected != given:
        kinds = [
            "text" if width is None else f"vectors of {width} numbers"
            for width in (expected, given)
        ]
        advice = "" if expected is None else "; give a file of such vectors (.npy or .safetensors)"
        raise SeqgenError(f"{name} reads {kinds[0]}, not {kinds[1]}{advice}")


def starts_of(ends: np.ndarray) -> np.ndarray:
    """Compute the starts of consecutive spans from their `ends`, (D,) int64."""
    return np.concatenate([[0], ends[:-1]]).astype(np.int64)


def take_spans(
    values: np.ndarray, starts: np.ndarray, ends: np.ndarray, which: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate selected spans of an array; return the values and the ends of the spans.

    Args:
        values: (N, ...), what the spans are of.
        starts: (D,), where each begins.
        ends: (D,), where each ends.
        which: (E,) of int, the spans to take, in this order.
    """
    begin, end = starts[which], ends[which]
    new_ends = np.cumsum(end - begin, dtype=np.int64)
    # Each value's place: its span's beginning, moved by where that stands among those taken.
    shift = np.repeat(begin - starts_of(new_ends), end - begin)
    return values[np.arange(shift.size) + shift], new_ends
