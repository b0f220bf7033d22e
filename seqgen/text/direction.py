"""Right-to-left and two-way reading of a text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from seqgen.text.batches import Batch, Batches, DerivedBatches
from seqgen.text.corpus import Corpus, GrowingArray

if TYPE_CHECKING:
    from seqgen.settings import Direction

# Tokens or documents that are turned at a time.
BLOCK = 1 << 20


def orient_corpus(corpus: Corpus, direction: Direction) -> Corpus:
    """Reorder the tokens of a corpus for a model's reading direction."""
    return reverse_corpus(corpus) if direction == "backward" else corpus


def reverse_corpus(corpus: Corpus) -> Corpus:
    """Reverse the tokens of each document, for a right-to-left model.

    A document w1 ... wn with an end becomes wn ... w1 and its end; a stream, which has none, is
    turned as a whole. So p(w) is the product over t of p(w_t | w_t+1 ... w_n): the chain rule in
    the other order, with the same tokens to score.
    """
    if corpus.ends.size == 0:
        return corpus
    tokens = GrowingArray(corpus.tokens.dtype)
    if corpus.end is None and corpus.ends.size == 1:
        for stop in range(corpus.tokens.size, 0, -BLOCK):
            tokens.add(corpus.tokens[max(0, stop - BLOCK) : stop][::-1])
    else:
        for first in range(0, corpus.ends.size, BLOCK):
            some = slice(first, first + BLOCK)
            begin, stop = int(corpus.starts[first]), int(corpus.ends[some][-1])
            order = _order(corpus.starts[some] - begin, corpus.ends[some] - begin, corpus.end)
            tokens.add(corpus.tokens[begin:stop][order])
    return replace(corpus, tokens=tokens.array())


def reading_order(corpus: Corpus) -> np.ndarray:
    """Compute the position in `corpus` of each token of `reverse_corpus(corpus)`, (N,) int64.

    Reversing twice is no change: the same numbers are the positions in the reversed corpus of
    the tokens of `corpus`.
    """
    return _order(corpus.starts, corpus.ends, corpus.end)


def _order(starts: np.ndarray, ends: np.ndarray, end: int | None) -> np.ndarray:
    last = ends if end is None else ends - 1  # where each document's words stop
    order = np.repeat(starts + last - 1, ends - starts) - np.arange(ends[-1] if ends.size else 0)
    if end is not None:
        order[ends - 1] = ends - 1
    return order


@dataclass(frozen=True, kw_only=True)
class TwoWayBatch(Batch):
    """Batch of rows that are read in both directions.

    Attributes:
        backward: the latter; see `DataConfig.direction`.
    """

    backward: Batch

    def rows(self, cut: slice, trim: bool = True) -> Batch:
        """Slice rows of the batch, in both directions."""
        rows = replace(self, backward=self.backward.rows(cut, trim))
        return super(TwoWayBatch, rows).rows(cut, trim)

    def columns(self, count: int) -> Batch:
        """Keep at most the first `count` tokens of each row, in both directions."""
        rows = replace(self, backward=self.backward.columns(count))
        return super(TwoWayBatch, rows).columns(count)


class TwoWayBatches(DerivedBatches):
    """Batches that contain the same text in both directions.

    Documents that are shorter than a window are the same ones on both sides.

    Args:
        forward: its batches.
        backward: those of the text from right to left, with the same settings.
    """

    def __init__(self, forward: Batches, backward: Batches) -> None:
        super().__init__(forward)
        self._directions = forward, backward

    def batch(self, step: int) -> TwoWayBatch:
        there, back = (batches.batch(step) for batches in self._directions)
        return TwoWayBatch(**vars(there), backward=back)

    def batch_of_epoch(self, epoch: int, index: int) -> TwoWayBatch:
        there, back = (batches.batch_of_epoch(epoch, index) for batches in self._directions)
        return TwoWayBatch(**vars(there), backward=back)
