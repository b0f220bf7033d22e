"""Count the n-grams of a text by sorted runs, in memory or in temporary files."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from seqgen.models.ngram.arrays import NOTHING
from seqgen.models.ngram.settings import NGramConfig
from seqgen.settings import require
from seqgen.text.corpus import Corpus, GrowingArray, release_pages

# N-grams are counted in a table of all possible ones if it is at most this many times as long as
# the text, and by sorting otherwise.
TABLE_PER_KEY = 4
# Bytes that counting takes for each place that it handles at once, and the fewest places.
BYTES_A_PLACE, LEAST_PLACES = 192, 1 << 14
STATM = Path("/proc/self/statm")


def memory_taken() -> int:
    """Read how many bytes of memory this process has; 0 on Windows, where that is not known."""
    if STATM.exists():
        return int(STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # at most so far; in bytes on macOS


@dataclass(frozen=True)
class MemoryBudget:
    """Memory limit: the size of the pieces of a text, or of its n-grams, processed at once.

    Attributes:
        places: so many; the n-grams that continue one context are not divided.
        spill: bytes of a column that stay in memory.
    """

    places: int
    spill: float

    @classmethod
    def of(cls, memory: int | None, vocab_size: int) -> MemoryBudget:
        """Derive block sizes from a process's memory in bytes; None for no limit.

        Raises:
            UsageError: it takes more already, or too little is left.
        """
        if memory is None:
            return NO_LIMIT
        taken = memory_taken()
        needed = taken + BYTES_A_PLACE * max(LEAST_PLACES, vocab_size + 1)
        least = f"this text needs {math.ceil(needed / 1e6):,}M at least"
        require(memory >= needed, f"--memory {memory / 1e6:,g}M is too little: {least}")
        left = memory - taken
        return cls(left // BYTES_A_PLACE, left >> 10)

    def column(self, kind: type, *values: np.ndarray) -> GrowingArray:
        """Make a new column, in memory or in a temporary file."""
        column = GrowingArray(kind, self.spill)
        for each in values:
            column.add(each)
        return column


NO_LIMIT = MemoryBudget(sys.maxsize, math.inf)


@dataclass(frozen=True)
class Counts:
    """Distinct n-grams of one order n as M rows of columns (M,).

    Attributes:
        keys: int64, ascending: (id of the first n - 1 words) V + (the last word); of order 1, all
            V words.
        raw: int64, how often each was seen, its last word being scored.
        suffixes: int64, the id of the last n - 1 words; for order 1 the word itself.
        adjusted: int64, how many different words were seen before it; `raw` for the highest
            order, and for those that begin a document by a symbol that stands nowhere else (so
            that nothing was ever before them).
        initial: which ones these last are: ids from the first number on, below the second.
        kept: bool, false for those to be pruned.
    """

    keys: GrowingArray
    raw: GrowingArray
    suffixes: GrowingArray
    adjusted: GrowingArray
    initial: tuple[int, int]
    kept: GrowingArray

    @property
    def size(self) -> int:
        """Number of n-grams, M."""
        return self.keys.size

    def frequencies(self, column: str, most: int) -> np.ndarray:
        """Count how many n-grams have each value 0 to `most` in a column, (most + 1,)."""
        pieces = getattr(self, column).pieces()
        zeros = np.zeros(most + 1, np.int64)
        return sum((np.bincount(p[p <= most], minlength=most + 1) for p in pieces), start=zeros)

    @property
    def stored(self) -> int:
        """Number of n-grams that survive pruning."""
        return sum(int(np.count_nonzero(piece)) for piece in self.kept.pieces())


class FramedText:
    """Corpus in pieces, with a start symbol before each document.

    Iterating yields the words of each piece, (L,), and their places in their documents, (L,).
    """

    def __init__(self, corpus: Corpus, budget: MemoryBudget = NO_LIMIT) -> None:
        self._corpus, self._budget = corpus, budget
        self._whole = list(self._read()) if corpus.tokens.size <= budget.places else None

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return self._read() if self._whole is None else iter(self._whole)

    def _read(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        corpus = self._corpus
        for begin in range(0, corpus.tokens.size, self._budget.places):
            end = min(begin + self._budget.places, corpus.tokens.size)
            first, last = corpus.starts.searchsorted([begin, end]).tolist()
            starts = corpus.starts[first:last] - begin
            tokens = np.asarray(corpus.tokens[begin:end]).astype(np.int64)
            words = np.insert(tokens, starts, corpus.start)
            if self._budget is not NO_LIMIT:
                release_pages(corpus.tokens)
            # The document that the piece begins in, if it began before, goes on.
            before = begin - int(corpus.starts[first - 1]) + 1 if first else 0
            begins = np.append(-before, starts + np.arange(starts.size))
            lengths = np.diff(np.concatenate([[0], begins[1:], [words.size]]))
            yield words, np.arange(words.size) - np.repeat(begins, lengths)


@dataclass(frozen=True)
class _Run:
    """Sorted distinct n-grams of a piece of text, and the index of the n-gram at each position."""

    keys: GrowingArray
    raw: GrowingArray
    suffixes: GrowingArray
    which: GrowingArray


def count(
    corpus: Corpus, config: NGramConfig, possible: np.ndarray, budget: MemoryBudget = NO_LIMIT
) -> list[Counts]:
    """Count the n-grams of every order, 1 to N; none spans two documents.

    The n-grams of each piece of the text are sorted, and these runs are merged, as in KenLM's
    lmplz (Heafield et al. 2013). Where there is memory for the whole text there is one run.
    """
    size, text = config.vocab_size, FramedText(corpus, budget)
    every, raw, ids = np.arange(size), np.zeros(size, np.int64), budget.column(np.int64)
    for words, place in text:
        raw += np.bincount(words[place > 0], minlength=size)
        ids.add(words)  # of the n-gram that ends at each word
    single, raw = budget.column(np.int64, every), budget.column(np.int64, raw)
    initial = corpus.start, corpus.start + (not possible[corpus.start])
    kept = budget.column(bool, np.ones(size, bool))
    counts = [Counts(single, raw, single, raw, initial, kept)]
    for n, limit in enumerate(config.thresholds[1:], start=2):
        possible_keys = counts[-1].size * size
        runs, firsts, done = [], budget.column(np.int64), 0
        for words, place in text:
            one = min(done, 1)  # the id before the piece's first, if there is one
            known = ids[done - one : done + words.size]
            at = np.flatnonzero(place >= n - 1)
            here = known[at + one]
            keys, which, raw = _distinct_keys(known[at + one - 1] * size + words[at], possible_keys)
            suffixes = np.empty(keys.size, dtype=np.int64)
            suffixes[which] = here
            columns = keys, raw, suffixes, which
            runs.append(_Run(*(budget.column(np.int64, values) for values in columns)))
            # The first n-gram of a text includes the start symbol, as if it were one more word;
            # but the start symbol itself is not predicted.
            if n > 2:
                firsts.add(np.unique(known[one:][place == n - 2]))
            done += words.size
        merged, ranks = _merge_runs(runs, budget)
        counts[-1] = _adjusted(counts[-1], merged.suffixes, firsts, budget)
        edges = [edge * size for edge in counts[-1].initial]
        initial = sum(piece.searchsorted(edges) for piece in merged.keys.pieces())
        kept = budget.column(bool, *(piece > limit for piece in merged.raw.pieces()))
        initial = tuple(np.broadcast_to(initial, 2).tolist())
        columns = merged.keys, merged.raw, merged.suffixes, merged.raw
        counts.append(Counts(*columns, initial, kept))
        ids = budget.column(np.int64)
        if n < config.order:
            for (words, place), run, rank in zip(text, runs, ranks, strict=True):
                fresh = np.full(words.size, NOTHING)
                fresh[place >= n - 1] = run.which[:] if rank is None else rank[:][run.which[:]]
                ids.add(fresh)
    return counts


def _merge_runs(
    runs: Sequence[_Run], budget: MemoryBudget
) -> tuple[_Run, list[GrowingArray | None]]:
    """Merge sorted runs; also return the index of each run's n-grams in the result.

    These are None for a single run, whose n-grams are all.
    """
    if len(runs) == 1:
        return runs[0], [None]
    merged = _Run(*(budget.column(np.int64) for _ in range(4)))
    ranks = [budget.column(np.int64) for _ in runs]
    at_once, done = max(1, budget.places // max(1, len(runs))), [0] * len(runs)
    while any(begin < run.keys.size for begin, run in zip(done, runs, strict=True)):
        heads = [run.keys[at : at + at_once] for at, run in zip(done, runs, strict=True)]
        # What is no more than the last key of each head cannot come again in another one.
        parts = zip(heads, done, runs, strict=True)
        last_keys = [head[-1] for head, at, run in parts if at + head.size < run.keys.size]
        if last_keys:
            heads = [head[: head.searchsorted(min(last_keys), "right")] for head in heads]
        spans = [slice(at, at + head.size) for at, head in zip(done, heads, strict=True)]
        keys, which, _ = _distinct_keys(np.concatenate(heads), sys.maxsize)
        raw, suffixes = (np.zeros(keys.size, np.int64) for _ in range(2))
        number, base = 0, merged.keys.size
        for rank, run, span, head in zip(ranks, runs, spans, heads, strict=True):
            mine = which[number : number + head.size]
            raw[mine] += run.raw[span]
            suffixes[mine] = run.suffixes[span]
            rank.add(mine + base)
            number += head.size
        merged.keys.add(keys)
        merged.raw.add(raw)
        merged.suffixes.add(suffixes)
        done = [span.stop for span in spans]
    return merged, ranks


def _distinct_keys(keys: np.ndarray, possible: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sorted distinct keys, the index of each key among them, and their counts.

    Args:
        keys: (M,) int64, from 0 to `possible` - 1.
        possible: how many keys there could be.
    """
    if possible <= TABLE_PER_KEY * keys.size:
        # With few possible keys, as over characters, a table is faster than sorting.
        table = np.bincount(keys, minlength=possible)
        present = np.flatnonzero(table)
        counts = table[present]
        table[present] = np.arange(present.size)
        return present, table[keys], counts
    order = np.argsort(keys)
    ordered = keys[order]
    new = np.ones(keys.size, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    first = np.flatnonzero(new)
    which = np.empty(keys.size, dtype=np.int64)
    which[order] = np.cumsum(new) - 1
    return ordered[first], which, np.diff(np.append(first, keys.size))


def _adjusted(
    counts: Counts, suffixes: GrowingArray, firsts: GrowingArray, budget: MemoryBudget
) -> Counts:
    """Compute Kneser-Ney counts: the number of different words before each n-gram.

    Args:
        counts: of n-grams.
        suffixes: the ids of the n-grams that end the distinct (n + 1)-grams.
        firsts: the ids of the n-grams that begin a document, some of them more than once.
        budget: for so many at once.
    """
    adjusted = budget.column(np.int64)
    for begin in range(0, counts.size, budget.places):
        end = min(begin + budget.places, counts.size)
        before, met = np.zeros(end - begin, np.int64), np.zeros(end - begin, bool)
        for piece in suffixes.pieces():
            before += np.bincount(_ids_in_block(piece, begin, end, counts), minlength=end - begin)
        for piece in firsts.pieces():
            met[_ids_in_block(piece, begin, end, counts)] = True
        before += met
        initial = slice(*(min(max(0, at - begin), end - begin) for at in counts.initial))
        before[initial] = counts.raw[begin:end][initial]
        adjusted.add(before)
    return replace(counts, adjusted=adjusted)


def _ids_in_block(ids: np.ndarray, begin: int, end: int, counts: Counts) -> np.ndarray:
    """Select the ids inside a block of n-grams, relative to its beginning."""
    whole = end - begin == counts.size
    return ids if whole else ids[(ids >= begin) & (ids < end)] - begin


@dataclass(frozen=True)
class GramBlock:
    """A block of n-grams of one order, with all contexts that they continue.

    Attributes:
        n: the order.
        grams: which n-grams they are.
        contexts: which (n - 1)-grams, or the empty context, they continue.
        of: (M,), the context of each, counted from the first.
        counts: all n-grams of every order.
    """

    n: int
    grams: slice
    contexts: slice
    of: np.ndarray
    counts: Sequence[Counts]

    def read(self, column: str) -> np.ndarray:
        """Read the values (M,) of a column for this block."""
        return getattr(self.counts[self.n - 1], column)[self.grams]

    @property
    def size(self) -> int:
        """Number of contexts, C."""
        return self.contexts.stop - self.contexts.start

    @property
    def shorter(self) -> np.ndarray:
        """Ids (C,) of the contexts without their first word."""
        if self.n == 2:
            return np.zeros(self.size, np.int64)
        return self.counts[self.n - 2].suffixes[self.contexts]

    def total(self, values: np.ndarray) -> np.ndarray:
        """Add up values of the M n-grams, (M,), for each of the C contexts, (C,)."""
        return np.bincount(self.of, weights=values, minlength=self.size)


def blocks(n: int, counts: Sequence[Counts], budget: MemoryBudget) -> Iterator[GramBlock]:
    """Yield the n-grams of an order with their contexts, block by block."""
    grams, size = counts[n - 1], counts[0].size
    count = counts[n - 2].size if n > 1 else 1
    begin = first = 0
    while first < count:
        of = grams.keys[begin : begin + budget.places] // size
        # The last context may have more continuations, of which all must be in one block.
        last = int(of[-1]) if begin + of.size < grams.size else count
        last = min(last, first + budget.places)
        end = begin + int(of.searchsorted(last))
        yield GramBlock(n, slice(begin, end), slice(first, last), of[: end - begin] - first, counts)
        begin, first = end, last
