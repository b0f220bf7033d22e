"""Batches of a text that is read from both of its ends."""

from __future__ import annotations

from dataclasses import dataclass, replace

from seqgen.data.batch import Batch
from seqgen.data.batches import Batches


@dataclass(frozen=True, kw_only=True)
class TwoWayBatch(Batch):
    """Rows of a text as they are, and as many from right to left.

    Attributes:
        backward: the latter; see `data.direction`.
    """

    backward: Batch

    def rows(self, cut: slice, trim: bool = True) -> Batch:
        """Return some of the rows, in both directions."""
        rows = replace(self, backward=self.backward.rows(cut, trim))
        return super(TwoWayBatch, rows).rows(cut, trim)


class BothWays(Batches):
    """The same text in both directions, in every step.

    Documents that are shorter than a window are the same ones on both sides.

    Args:
        forward: its batches.
        backward: those of the text from right to left, with the same settings.
    """

    def __init__(self, forward: Batches, backward: Batches) -> None:
        super().__init__(forward.corpus, forward.batch_size, forward.seq_len, forward.seed)
        self._directions = forward, backward

    @property
    def steps_per_epoch(self) -> int:
        return self._directions[0].steps_per_epoch

    def batch(self, step: int) -> TwoWayBatch:
        there, back = (batches.batch(step) for batches in self._directions)
        return TwoWayBatch(**vars(there), backward=back)

    def batch_of_epoch(self, epoch: int, index: int) -> TwoWayBatch:
        there, back = (batches.batch_of_epoch(epoch, index) for batches in self._directions)
        return TwoWayBatch(**vars(there), backward=back)
