"""Corpora: arrays of token ids with document ends, in memory or memory-mapped."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from seqgen.errors import reporting_os_errors
from seqgen.text.encoding import Sampling, encode_blocks, encode_lines
from seqgen.text.framing import Framing
from seqgen.text.sources import Sources, starts_of, take_spans
from seqgen.text.tokenizers.base import SPECIALS
from seqgen.white_space import strip_utf8

if TYPE_CHECKING:
    from seqgen.settings import Documents
    from seqgen.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Corpus:
    """A corpus: documents as one array of token ids, with their ends and sources.

    Attributes:
        tokens: (N,) unsigned: every scored token, document after document, ends included.
        ends: (D,) int64: where each document ends in `tokens`; a stream is one document.
        start: the id each document starts after; None if its own first token is only read.
        oov: how many tokens are `<unk>`.
        sources: what each document is written from, D of them; None for text alone.
        end: the id that each document ends with; None for a stream, which has no end.
        counted: (N,) bool, which tokens losses and scores count; None for all of them.
    """

    tokens: np.ndarray
    ends: np.ndarray
    start: int | None
    oov: int = 0
    sources: Sources | None = None
    end: int | None = None
    counted: np.ndarray | None = None

    @cached_property
    def starts(self) -> np.ndarray:
        """(D,) int64: start of each document in `tokens`."""
        return starts_of(self.ends)

    @property
    def scored(self) -> int:
        """Number of tokens that count in the loss."""
        return int(self.tokens.size if self.counted is None else np.count_nonzero(self.counted))

    @cached_property
    def first_targets(self) -> np.ndarray:
        """(D,) int64: where the tokens begin that each document's other tokens predict."""
        return self.starts if self.start is not None else self.starts + 1

    def take(self, documents: np.ndarray) -> Corpus:
        """Select documents by number, each with its source.

        `oov` stays that of the whole corpus: it is not recorded which tokens are unknown.
        """
        tokens, ends = take_spans(self.tokens, self.starts, self.ends, documents)
        sources, counted = self.sources, self.counted
        if sources is not None:
            sources = sources.take(documents)
        if counted is not None:
            counted, _ = take_spans(counted, self.starts, self.ends, documents)
        return replace(self, tokens=tokens, ends=ends, sources=sources, counted=counted)


class Unknowns:
    """Collects the unknown tokens of a text while it is encoded block by block.

    Args:
        tokenizer: of the text.
        each: record every unknown token, which takes memory for each; else only their bytes.

    Attributes:
        bytes: the UTF-8 bytes of all. The text `<unk>` itself has none: the token says all of it.
        places: which tokens they are, if each is recorded.
        sizes: the bytes of each, if each is recorded.
    """

    def __init__(self, tokenizer: Tokenizer, each: bool = False) -> None:
        self.tokenizer, self.each = tokenizer, each
        self.bytes = 0
        self.places: list[int] = []
        self.sizes: list[int] = []

    def watch(
        self, blocks: Iterable[tuple[bytes, np.ndarray]]
    ) -> Iterator[tuple[bytes, np.ndarray]]:
        """Pass the blocks through, recording their unknown tokens."""
        seen = 0
        for raw, ids in blocks:
            places = np.flatnonzero(ids == self.tokenizer.unk_id)
            if places.size:
                ends = [0, *self.tokenizer.byte_ends(raw.decode()).tolist()]
                pieces = (raw[ends[place] : ends[place + 1]] for place in places.tolist())
                sizes = list(map(self._size, pieces))
                self.bytes += sum(sizes)
                if self.each:
                    self.places += (seen + places).tolist()
                    self.sizes += sizes
            seen += ids.size
            yield raw, ids

    def _size(self, piece: bytes) -> int:
        if not self.tokenizer.lossless:  # white space between tokens is part of none
            piece = strip_utf8(piece)
        return 0 if piece == SPECIALS[-1].encode() else len(piece)


def unknown_bytes(chunks: Iterable[str], tokenizer: Tokenizer, documents: Documents) -> int:
    """Count the UTF-8 bytes of a text that are encoded as `<unk>`."""
    unknowns = Unknowns(tokenizer)
    encode_corpus(chunks, tokenizer, documents, unknowns=unknowns)
    return unknowns.bytes


def encode_corpus(
    chunks: Iterable[str],
    tokenizer: Tokenizer,
    documents: Documents,
    sampling: Sampling | None = None,
    framing: Framing | None = None,
    unknowns: Unknowns | None = None,
) -> Corpus:
    """Encode a text to a corpus: one stream, or one document per line.

    A line ends at `\\n` or at the end of the text; its `\\n` becomes EOS, and an empty line is
    EOS alone. Large arrays are kept in a temporary file, not in memory.

    Args:
        chunks: the text in pieces cut anywhere.
        tokenizer: its ids.
        documents: "stream" or "line".
        sampling: draw the segmentation.
        framing: how documents start and end; None for that of a model trained on `documents`.
        unknowns: records the unknown tokens.
    """
    framing = framing or Framing.of(tokenizer, documents)
    by_line = framing.end is not None and not tokenizer.line_safe
    if by_line:
        blocks = encode_lines(chunks, tokenizer, framing.end)
    else:
        blocks = encode_blocks(chunks, tokenizer, sampling)
    if unknowns is not None:
        blocks = unknowns.watch(blocks)
    if framing.end is None or by_line:
        pieces = (ids for _, ids in blocks)
    else:
        pieces = _end_lines(blocks, tokenizer, framing.end)
    return gather_corpus(pieces, framing, tokenizer)


def gather_corpus(pieces: Iterable[np.ndarray], framing: Framing, tokenizer: Tokenizer) -> Corpus:
    """Concatenate pieces of framed ids to a corpus."""
    tokens, ends = GrowingArray(tokenizer.dtype), GrowingArray(np.int64)
    oov = 0
    for ids in pieces:
        if framing.end is not None:
            ends.add(tokens.size + 1 + np.flatnonzero(ids == framing.end))
        oov += int(np.count_nonzero(ids == tokenizer.unk_id))
        tokens.add(ids)
    if framing.end is None and tokens.size:
        ends.add(np.array([tokens.size]))
    return Corpus(tokens.array(), ends.array(), framing.start, oov, end=framing.end)


class GrowingArray:
    """Growing array that moves to an anonymous temporary file once it is large.

    It is read by slices, or by arrays of places, without loading what lies in the file at once.

    Args:
        dtype: of its items.
        spill: the bytes up to which it is kept in memory; `SPILL` if None.
    """

    SPILL = 1 << 26
    # Items that are read at once where all are read in turn.
    PIECE = 1 << 20

    def __init__(self, dtype: type, spill: float | None = None) -> None:
        self.dtype, self.size = np.dtype(dtype), 0
        self._most = self.SPILL if spill is None else spill
        self._held: list[np.ndarray] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None

    @property
    def on_disk(self) -> bool:
        """Whether the array is in a temporary file."""
        return self._file is not None

    def add(self, values: np.ndarray) -> None:
        """Append values to the array."""
        values = np.ascontiguousarray(values, dtype=self.dtype)
        self._held.append(values)
        self.size += values.size
        self._bytes += values.nbytes
        if self._bytes > self._most:
            self._spill()

    def _spill(self) -> None:
        with reporting_os_errors(
            f"the temporary files in {tempfile.gettempdir()} cannot be written"
        ):
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115
            self._file.seek(0, os.SEEK_END)
            for values in self._held:
                self._file.write(memoryview(values).cast("B"))
            self._file.flush()
        self._held, self._bytes = [], 0

    def array(self) -> np.ndarray:
        """Return the whole array (N,); copy-on-write mapped if it is in a file."""
        if self._file is None:
            if len(self._held) != 1:
                self._held = [np.concatenate([np.zeros(0, self.dtype), *self._held])]
            return self._held[0]
        self._spill()
        return np.asarray(np.memmap(self._file, self.dtype, "c", shape=(self.size,)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array() if dtype is None else self.array().astype(dtype, copy=False)

    def __getitem__(self, key: slice) -> np.ndarray:
        if self._file is None:
            return self.array()[key]
        if self._held:
            self._spill()
        begin, end, _ = key.indices(self.size)
        items = np.empty(max(0, end - begin), self.dtype)
        self._file.seek(begin * self.dtype.itemsize)
        self._file.readinto(memoryview(items).cast("B"))
        return items

    def pieces(self) -> Iterator[np.ndarray]:
        """Yield all items in pieces; in one piece if they are in memory."""
        step = max(1, self.size) if self._file is None else self.PIECE
        for begin in range(0, self.size, step):
            yield self[begin : begin + step]

    def take(self, places: np.ndarray) -> np.ndarray:
        """Gather the items at non-negative positions (M,), in any order."""
        if self._file is None:
            return self.array()[places]
        items, order = np.empty(places.shape, self.dtype), np.argsort(places)
        ordered, begin, first = places[order], 0, 0
        for piece in self.pieces():
            last = int(ordered.searchsorted(begin + piece.size))
            items[order[first:last]] = piece[ordered[first:last] - begin]
            begin, first = begin + piece.size, last
        return items


def release_pages(array: np.ndarray | ConcatenatedArray) -> None:
    """Release the memory of an unchanged array that is mapped from a file.

    The whole map is released, of a slice too; also one for copy-on-write, as of encoded texts,
    which `seqgen.mapped_tensors.forget_pages` leaves alone.
    """
    for part in array.parts if isinstance(array, ConcatenatedArray) else [array]:
        while isinstance(part, np.ndarray):
            part = part.base
        if isinstance(part, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            part.madvise(mmap.MADV_DONTNEED)


def _end_lines(
    blocks: Iterable[tuple[bytes, np.ndarray]], tokenizer: Tokenizer, end: int
) -> Iterator[np.ndarray]:
    """Replace each newline by the end token, and end an unfinished last line."""
    open_line = False
    for raw, ids in blocks:
        yield np.where(ids == tokenizer.newline_id, ids.dtype.type(end), ids)
        open_line = not raw.endswith(b"\n")
    if open_line:
        yield np.array([end], dtype=tokenizer.dtype)


# A slice over several arrays is copied if it has no more items than this.
COPIED = 1 << 24


def slice_items(
    items: np.ndarray | ConcatenatedArray, begin: int, end: int
) -> np.ndarray | ConcatenatedArray:
    """Slice an array that may be joined from several, without copying it to memory."""
    return (
        ConcatenatedArray(items.within(begin, end))
        if isinstance(items, ConcatenatedArray)
        else items[begin:end]
    )


class ConcatenatedArray:
    """Read-only concatenation (N,) of memory-mapped arrays of one type.

    It takes what corpora are asked for: items by slices and by arrays of places. A large slice is
    joined too. `numpy.asarray` copies all of it into memory.

    Args:
        parts: one-dimensional, in order.
    """

    ndim = 1

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self.parts = [part for part in parts if part.size]
        self.dtype = parts[0].dtype
        bounds = np.cumsum([0, *(part.size for part in self.parts)])
        self.starts, self.ends = bounds[:-1], bounds[1:]  # of each part
        self.size = int(bounds[-1])
        self.shape = (self.size,)

    def __len__(self) -> int:
        return self.size

    def __deepcopy__(self, memo: dict[int, Any]) -> ConcatenatedArray:
        return self  # nothing writes to the files

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = np.concatenate([np.zeros(0, self.dtype), *self.parts])
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def astype(self, dtype: Any) -> np.ndarray:
        """Copy the array to memory as another type."""
        return np.asarray(self).astype(dtype)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._slice(*key.indices(self.size))
        places = np.asarray(key)
        if places.dtype == bool:
            return np.asarray(self)[places]
        if places.ndim == 0:
            return self._at(places[None])[0]
        return self._at(places)

    def _slice(self, begin: int, end: int, step: int) -> Any:
        if step != 1:
            return np.asarray(self)[begin : end if end >= 0 else None : step]
        pieces = self.within(begin, end)
        if len(pieces) == 1:
            return pieces[0]
        if end - begin <= COPIED:
            return np.concatenate([np.zeros(0, self.dtype), *pieces])
        return ConcatenatedArray(pieces)

    def within(self, begin: int, end: int) -> list[np.ndarray]:
        """List the slices of the parts between two positions."""
        pieces = [
            part[max(0, begin - start) : max(0, end - start)]
            for part, start in zip(self.parts, self.starts.tolist(), strict=True)
        ]
        return [piece for piece in pieces if piece.size] or [np.zeros(0, self.dtype)]

    def _at(self, places: np.ndarray) -> np.ndarray:
        """Gather the items at an array of positions; negative ones count from the end."""
        if places.size and not (-self.size <= places.min() and places.max() < self.size):
            raise IndexError(f"a place is outside of {self.size} items")
        places = np.where(places < 0, places + self.size, places)
        which = np.searchsorted(self.ends, places, "right")
        items = np.empty(places.shape, self.dtype)
        for number in np.unique(which).tolist():
            there = which == number
            part = self.parts[number]
            items[there] = part[places[there] - int(self.starts[number])]
        return items
