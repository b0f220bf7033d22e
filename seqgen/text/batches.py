"""Training batches, and their division among processes.

The batch of step n is a function of (corpus, settings, seed, n) alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from seqgen.hashing import hash64, uniforms
from seqgen.text.sources import Source

if TYPE_CHECKING:
    from seqgen.settings import Documents
    from seqgen.settings.training import Windows
    from seqgen.text.corpus import Corpus
    from seqgen.text.labels import Labels
    from seqgen.text.tokenizers import Tokenizer

# A target that does not count.
IGNORED = -100


@dataclass(frozen=True)
class Batch:
    """Tokens of one training step: inputs, targets and sources.

    Attributes:
        tokens: (B, T) int64, what the model reads.
        targets: (B, T) int64, the token after each; `IGNORED` where a row has ended.
        fresh: the rows begin new texts; otherwise they continue the rows of the last batch.
        count: how many targets are scored.
        advance: the next batch continues after this many columns; None for all of them.
        source: what each row is written from, B sources; None for text alone.
    """

    tokens: np.ndarray
    targets: np.ndarray
    fresh: bool
    count: int
    advance: int | None = None
    source: Source | None = None

    def first(self, rows: int) -> Batch:
        """Keep at most the first `rows` rows; `count` stays that of the whole batch."""
        return self.rows(slice(rows))

    def rows(self, cut: slice, trim: bool = True) -> Batch:
        """Slice rows of the batch; sources keep their padding unless `trim`."""
        source = None if self.source is None else self.source.part(cut, trim)
        return replace(self, tokens=self.tokens[cut], targets=self.targets[cut], source=source)

    def columns(self, count: int) -> Batch:
        """Keep at most the first `count` tokens of each row; overlapping windows stay whole."""
        if self.advance is not None:
            return self
        return replace(self, tokens=self.tokens[:, :count], targets=self.targets[:, :count])


def cut_rows(rows: int, pieces: int) -> list[slice]:
    """Divide row indices into at most `pieces` consecutive slices of about equal size."""
    pieces = min(pieces, rows)
    return [slice(*pair) for pair in pairwise(rows * i // pieces for i in range(pieces + 1))]


# The first word of every hash drawn here, so that different kinds of draws are independent.
WINDOW, SHIFT, SHUFFLE = range(3)
# Length-sorted pools hold this many batches: long enough that padding is rare, short enough
# that an epoch's order stays random.
POOL = 32


class Batches(ABC):
    """Base class: a corpus divided into the batches of training steps.

    Args:
        corpus: the training part.
        batch_size: rows B.
        seq_len: the longest window T.
        seed: draws the order.
    """

    def __init__(self, corpus: Corpus, batch_size: int, seq_len: int, seed: int) -> None:
        self.corpus, self.seed = corpus, seed
        self.batch_size, self.seq_len = batch_size, seq_len

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """Number of steps in which every training token is seen about once."""

    @abstractmethod
    def batch(self, step: int) -> Batch:
        """Return the batch of step `step`, from 0."""

    def batch_of_epoch(self, epoch: int, index: int) -> Batch:
        """Return batch `index` of an epoch, both from 0.

        Batches whose epochs differ in length override this.
        """
        return self.batch(epoch * self.steps_per_epoch + index)


class DerivedBatches(Batches):
    """Base class of batches that are computed from other batches, step by step.

    Args:
        batches: the others.
    """

    def __init__(self, batches: Batches) -> None:
        super().__init__(batches.corpus, batches.batch_size, batches.seq_len, batches.seed)
        self._batches = batches

    @property
    def steps_per_epoch(self) -> int:
        return self._batches.steps_per_epoch


class FirstTokens(DerivedBatches):
    """The first rows or tokens of each batch, for timing trials.

    Args:
        batches: the others.
        count: how many tokens there are at most, if rows can be cut that long.
    """

    def __init__(self, batches: Batches, count: int) -> None:
        super().__init__(batches)
        self._count = count

    def batch(self, step: int) -> Batch:
        whole = self._batches.batch(step)
        some = whole.first(max(1, self._count // whole.tokens.shape[1])).columns(self._count)
        count = round(whole.count * some.tokens.size / whole.tokens.size)
        return replace(some, count=max(1, count))


class RandomWindows(Batches):
    """Random windows of a stream, for models without state between steps."""

    def __init__(self, corpus: Corpus, batch_size: int, seq_len: int, seed: int) -> None:
        super().__init__(corpus, batch_size, min(seq_len, corpus.tokens.size), seed)

    @property
    def steps_per_epoch(self) -> int:
        return max(1, round(self.corpus.tokens.size / (self.batch_size * self.seq_len)))

    def batch(self, step: int) -> Batch:
        rows = np.arange(self.batch_size)
        starts = self.corpus.tokens.size - self.seq_len + 1
        begin = (uniforms(WINDOW, self.seed, step, rows) * starts).astype(np.int64)
        return read_windows(self.corpus, begin, self.seq_len, fresh=True)


class ParallelStreams(Batches):
    """A stream cut into B rows, read in parallel with carried state: truncated BPTT.

    The stream is a ring, joined by its start symbol. In every epoch the rows begin at another
    offset, so that window edges and zero states never fall on the same tokens twice.
    """

    def __init__(self, corpus: Corpus, batch_size: int, seq_len: int, seed: int) -> None:
        size = corpus.tokens.size
        batch_size = max(1, min(batch_size, size // max(1, min(seq_len, size))))
        self.row_length = size // batch_size
        super().__init__(corpus, batch_size, min(seq_len, self.row_length), seed)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.row_length // self.seq_len)

    def batch(self, step: int) -> Batch:
        epoch, index = divmod(step, self.steps_per_epoch)
        size = self.corpus.tokens.size
        shift = int(uniforms(SHIFT, self.seed, epoch) * size) if epoch else 0
        begin = (np.arange(self.batch_size) * self.row_length + index * self.seq_len + shift) % size
        length = min(self.seq_len, self.row_length - index * self.seq_len)
        return read_windows(self.corpus, begin, length, fresh=index == 0)


class SequentialWindows(ParallelStreams):
    """Windows of parallel streams in order, for models without state between steps.

    Each begins from a zero state, and every token is a target once an epoch.
    """

    def batch(self, step: int) -> Batch:
        return replace(super().batch(step), fresh=True)


def read_windows(corpus: Corpus, begin: np.ndarray, length: int, fresh: bool) -> Batch:
    """Read the windows (B, length) that start at `begin`; the text wraps around at its end."""
    at = (begin[:, None] + np.arange(-1, length)) % corpus.tokens.size  # (B, T + 1)
    window = corpus.tokens[at].astype(np.int64)
    targets = window[:, 1:]
    # Before the first token of the text the model reads the start symbol, whatever the ring has.
    tokens = np.where(at[:, 1:] == 0, corpus.start, window[:, :-1])
    return Batch(tokens, targets, fresh, targets.size)


class DocumentBatches(Batches):
    """One document per row, grouped by length and padded on the right.

    Documents are shuffled every epoch, sorted by length within pools of `POOL` batches, and the
    batches of a pool shuffled. A document longer than the window is split into consecutive
    windows: with `carry` the following steps continue the same rows; without it, each window is a
    row of its own with a zero state.
    """

    def __init__(
        self, corpus: Corpus, batch_size: int, seq_len: int, seed: int, carry: bool
    ) -> None:
        begin, end = corpus.first_targets, corpus.ends
        if not carry:
            begin, end = split_spans(begin, end, seq_len)
        super().__init__(corpus, min(batch_size, begin.size), seq_len, seed)
        # There may be tens of millions of rows, so the numbers of each take as little as possible.
        longest = int((end - begin).max())
        kind = np.int32 if longest + seq_len <= np.iinfo(np.int32).max else np.int64
        self.begin, self.length = begin, (end - begin).astype(kind)  # (R,) each
        self._first_steps = [0]  # of each epoch, as far as known
        self._plan = lru_cache(maxsize=2)(self._make_plan)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of the first epoch; later ones may differ if long documents carry state."""
        return len(self._plan(0))

    def batch(self, step: int) -> Batch:
        while step >= self._first_steps[-1]:
            epoch = len(self._first_steps) - 1
            self._first_steps.append(self._first_steps[-1] + len(self._plan(epoch)))
        epoch = bisect_right(self._first_steps, step) - 1
        return self.batch_of_epoch(epoch, step - self._first_steps[epoch])

    def batch_of_epoch(self, epoch: int, index: int) -> Batch:
        """Return batch `index` of an epoch, modulo its number of batches."""
        plan = self._plan(epoch)
        rows, window = plan[index % len(plan)]
        return self._rows(rows, window * self.seq_len)

    def _make_plan(self, epoch: int) -> list[tuple[np.ndarray, int]]:
        """List the rows and the window of each step of an epoch."""
        keys = hash64(SHUFFLE, self.seed, epoch, np.arange(self.begin.size))
        order = np.argsort(keys, kind="stable").astype(np.min_scalar_type(keys.size))
        del keys
        batches: list[np.ndarray] = []
        for at in range(0, order.size, POOL * self.batch_size):
            pool = self._sorted(order[at : at + POOL * self.batch_size])
            edges = np.array(self._edges(pool))
            keys = hash64(SHUFFLE, self.seed, epoch, at, edges[:-1], 1)
            batches += [
                pool[edges[i] : edges[i + 1]] for i in np.argsort(keys, kind="stable").tolist()
            ]
        windows = -(-self.length // self.seq_len)  # (R,)
        return [(rows, w) for rows in batches for w in range(windows[rows].max())]

    def _sorted(self, pool: np.ndarray) -> np.ndarray:
        """Sort the rows of a pool by length."""
        return pool[np.argsort(self.length[pool], kind="stable")]

    def _edges(self, pool: np.ndarray) -> list[int]:
        """Cut a sorted pool into batches; return the boundaries."""
        return [*range(0, pool.size, self.batch_size), pool.size]

    def _rows(self, rows: np.ndarray, offset: int) -> Batch:
        tokens = self.corpus.tokens
        left = np.clip(self.length[rows] - offset, 0, self.seq_len)  # (B,)
        columns = np.arange(left.max())
        inside = columns < left[:, None]  # (B, T)
        at = np.where(inside, self.begin[rows, None] + offset + columns, 0)
        targets = tokens[at].astype(np.int64)
        # A row that has ended reads its last token again; the result is not used.
        last = self.begin[rows] + np.minimum(offset, self.length[rows]) - 1
        before = tokens[self.begin[rows] - 1]
        if self.corpus.start is not None:
            before = np.where(self._opens(rows), self.corpus.start, before)
        before = before if offset == 0 else tokens[last]
        read = np.concatenate([before[:, None], targets[:, :-1]], axis=1)
        if self.corpus.counted is not None:
            inside &= self.corpus.counted[at]
        scored = np.where(inside, targets, IGNORED)
        return Batch(read.astype(np.int64), scored, offset == 0, max(1, int(inside.sum())))

    def _opens(self, rows: np.ndarray) -> np.ndarray:
        """Mark the rows that start a document, (B,) bool; other rows continue a long one."""
        begin, starts = self.begin[rows], self.corpus.starts
        return starts[np.searchsorted(starts, begin, "right") - 1] == begin


def split_spans(begin: np.ndarray, end: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Split spans of tokens into consecutive spans of at most `length`."""
    pieces = -(-(end - begin) // length)
    if pieces.max() == 1:
        return begin, end  # the usual case for lines: it saves several numbers per document
    which = np.repeat(np.arange(begin.size), pieces)
    nth = np.arange(which.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = begin[which] + nth * length
    return first, np.minimum(first + length, end[which])


class PairBatches(DocumentBatches):
    """One pair per row, grouped by length, both sides padded on the right.

    Pairs are shuffled every epoch, sorted by the lengths of target and source within pools, cut
    into batches, and the batches of a pool shuffled. How many rows a batch has follows from
    `batch_size`, or from a budget of tokens: as many as keep rows times the longest side, source
    or target, within it, and one at least.

    Args:
        corpus: the training part, with sources.
        batch_size: rows B, or None where `tokens` says how many.
        seed: draws the order.
        tokens: the budget of a batch, padding included; None where `batch_size` is given.
    """

    def __init__(
        self, corpus: Corpus, batch_size: int | None, seed: int, tokens: int | None = None
    ) -> None:
        if (batch_size is None) == (tokens is None):
            raise ValueError("a batch has a number of rows, or a budget of tokens")
        self._budget = tokens
        lengths = corpus.ends - corpus.starts
        longest = np.maximum(lengths, corpus.sources.lengths)  # (D,), of either side
        if batch_size is None:
            # What the pools hold, in rows of average length; the batches have as many as fit.
            batch_size = max(1, round(tokens / longest.mean()))
        self._longest = longest
        # A window as long as the longest target cuts none.
        super().__init__(corpus, batch_size, int(lengths.max()), seed, carry=True)

    def _sorted(self, pool: np.ndarray) -> np.ndarray:
        return pool[np.lexsort((self.corpus.sources.lengths[pool], self.length[pool]))]

    def _edges(self, pool: np.ndarray) -> list[int]:
        if self._budget is None:
            return super()._edges(pool)
        edges, longest = [0], 0
        for at, length in enumerate(self._longest[pool].tolist()):
            longest = max(longest, length)
            if at > edges[-1] and (at + 1 - edges[-1]) * longest > self._budget:
                edges.append(at)
                longest = length
        return [*edges, pool.size]

    def _rows(self, rows: np.ndarray, offset: int) -> Batch:
        return replace(super()._rows(rows, offset), source=self.corpus.sources.rows(rows))


class SampledBatches(Batches):
    """Batches of a text segmented into subwords at random, anew every epoch (Kudo 2018).

    Every epoch has as many steps as the first, so that which epoch a step is in, and with that
    its batch, follows from its number and the seed alone. If an epoch has more steps than the
    first, the last ones are dropped; if it has fewer, it starts over.

    Args:
        cut: takes the number of an epoch, from 0; returns its batches.
    """

    def __init__(self, cut: Callable[[int], Batches]) -> None:
        self._cut = lru_cache(maxsize=1)(cut)
        first = self._cut(0)
        self._steps = first.steps_per_epoch
        super().__init__(first.corpus, first.batch_size, first.seq_len, first.seed)

    @property
    def steps_per_epoch(self) -> int:
        return self._steps

    def batch(self, step: int) -> Batch:
        epoch, index = divmod(step, self._steps)
        batch = self._cut(epoch).batch_of_epoch(epoch, index)
        return replace(batch, fresh=True) if index == 0 else batch


class OverlappingWindows(DerivedBatches):
    """Windows that overlap with the previous ones: truncated backpropagation BPTT(k2, k1).

    Every k1 tokens there is an update, whose gradient goes back k2 tokens: each batch reads the
    last k2 tokens, of which the newest k1 are scored, so that every token is scored once
    (Williams and Peng 1990). The next batch starts from the state at its first token, as it was
    computed last, with the weights of that time.

    Args:
        windows: of k1 tokens each, whose rows continue from one to the next.
        k2: how far back.
    """

    def __init__(self, windows: Batches, k2: int) -> None:
        super().__init__(windows)
        self._k2 = k2
        self._window = lru_cache(maxsize=2 + -(-k2 // windows.seq_len))(windows.batch)

    def batch(self, step: int) -> Batch:
        window, following = self._window(step), self._window(step + 1)
        read, step_back = [window], step
        while not read[0].fresh and _columns(read) < self._k2:
            step_back -= 1
            read.insert(0, self._window(step_back))
        left_out = max(0, _columns(read) - self._k2)
        tokens = np.concatenate([batch.tokens for batch in read], axis=1)[:, left_out:]
        targets = np.full_like(tokens, IGNORED)
        targets[:, -window.targets.shape[1] :] = window.targets
        # Where the next batch begins to read, relative to this one.
        advance = max(0, tokens.shape[1] + following.tokens.shape[1] - self._k2)
        if following.fresh:
            advance = tokens.shape[1]
        fresh = read[0].fresh and left_out == 0
        return Batch(tokens, targets, fresh, window.count, advance)


def _columns(batches: list[Batch]) -> int:
    return sum(batch.tokens.shape[1] for batch in batches)


def training_batches(
    corpus: Corpus,
    documents: Documents,
    carry: bool,
    batch_size: int,
    seq_len: int,
    seed: int,
    tokens: int | None = None,
    windows: Windows = "random",
) -> Batches:
    """Choose and build the kind of batches for a corpus and a model.

    Args:
        corpus: the training part.
        documents: "stream" or "line".
        carry: the model's state is carried from one window to the next.
        batch_size: rows B, fewer where the corpus is small.
        seq_len: the longest window T.
        seed: draws the order.
        tokens: of pairs, the budget of a batch, in the place of `batch_size`.
        windows: of a stream whose windows carry nothing, at random places or in order.
    """
    if corpus.sources is not None:
        return PairBatches(corpus, None if tokens else batch_size, seed, tokens)
    if documents == "line":
        return DocumentBatches(corpus, batch_size, seq_len, seed, carry)
    uncarried = RandomWindows if windows == "random" else SequentialWindows
    kind = ParallelStreams if carry else uncarried
    return kind(corpus, batch_size, seq_len, seed)


@dataclass(frozen=True)
class Portion:
    """The rows of one piece of a batch that one process computes.

    Attributes:
        piece: the rows that are computed at a time by all processes together.
        rows: those of this process; where there are fewer rows than processes, one that another
            process has.
        blank: another process has that row, and nothing that is computed of it counts.
    """

    piece: slice
    rows: slice
    blank: bool = False

    @property
    def count(self) -> int:
        """Number of rows that are computed."""
        return self.rows.stop - self.rows.start

    def of(self, batch: Batch) -> Batch:
        """Slice these rows out of a batch; `count` stays that of the whole batch.

        They are padded as the whole piece is, so that they are computed as within it.
        """
        begin = self.piece.start
        rows = slice(self.rows.start - begin, self.rows.stop - begin)
        part = batch.rows(self.piece).rows(rows, trim=False)
        if self.blank:
            part = replace(part, targets=np.full_like(part.targets, IGNORED))
        return part


def portions(rows: int, pieces: int, rank: int, world: int) -> list[Portion]:
    """Divide the pieces of a batch among processes; return the portion of process `rank` in each.

    Args:
        rows: of the batch.
        pieces: computed one after the other, as gradients are accumulated.
        rank: the process's number.
        world: how many processes there are.
    """
    chosen = []
    for piece in cut_rows(rows, pieces):
        parts = cut_rows(piece.stop - piece.start, world)
        blank = rank >= len(parts)
        part = slice(0, 1) if blank else parts[rank]
        own = slice(piece.start + part.start, piece.start + part.stop)
        chosen.append(Portion(piece, own, blank))
    return chosen


def row_numbers(chosen: Sequence[Portion]) -> list[int]:
    """List the batch row of each computed row, in order; -1 for a blank one."""
    return [
        -1 if portion.blank else row
        for portion in chosen
        for row in range(portion.rows.start, portion.rows.stop)
    ]


SOURCE_UNKNOWNS = 5  # the first word of the hash that draws them


class UnknownsInSources(DerivedBatches):
    """Batches with random source tokens replaced by `<unk>`, anew in every step.

    A vocabulary that comes from the training text leaves no unknown in it: without this, the
    embedding of `<unk>` would keep the random values that it began with. Token t of row r in step
    n is replaced if uniform(seed, n, r, t) is less than `probability`. Neither EOS nor a start
    symbol ever is.

    Args:
        batches: of pairs whose sources are tokens.
        probability: of each token to be replaced.
        unk_id: of the sources' tokenizer.
        start: sources have a symbol at the start, and not EOS at the end.
    """

    def __init__(
        self, batches: Batches, probability: float, unk_id: int, start: bool = False
    ) -> None:
        super().__init__(batches)
        self._probability, self._unk_id, self._start = probability, unk_id, start

    def batch(self, step: int) -> Batch:
        batch = self._batches.batch(step)
        values, lengths = batch.source.values, batch.source.lengths
        rows, columns = np.arange(len(values))[:, None], np.arange(values.shape[1])
        uniform = uniforms(SOURCE_UNKNOWNS, self.seed, step, rows, columns)  # (S, L)
        drawn = uniform < self._probability
        ends = lengths[:, None]
        drawn &= (columns > 0) & (columns < ends) if self._start else columns < ends - 1
        return replace(batch, source=Source(np.where(drawn, self._unk_id, values), lengths))


def with_unknowns(
    batches: Batches, tokenizer: Tokenizer | Labels | None, share: float, start: bool = False
) -> Batches:
    """Wrap batches in `UnknownsInSources` if a source can contain unknown tokens.

    Args:
        batches: of pairs.
        tokenizer: of their sources; None for vectors.
        share: see there.
        start: see there.
    """
    if not share or tokenizer is None or tokenizer.complete or tokenizer.unk_id is None:
        return batches
    return UnknownsInSources(batches, share, tokenizer.unk_id, start)
