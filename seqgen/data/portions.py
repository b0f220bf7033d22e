"""Which rows of a batch one of several processes computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from seqgen.data.batches import IGNORED, Batch, cuts


@dataclass(frozen=True)
class Portion:
    """A process's rows of one piece of a batch, by their numbers in the batch.

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
        """How many rows are computed."""
        return self.rows.stop - self.rows.start

    def of(self, batch: Batch) -> Batch:
        """Return these rows of a batch; `count` stays that of the whole batch.

        They are padded as the whole piece is, so that they are computed as within it.
        """
        begin = self.piece.start
        rows = slice(self.rows.start - begin, self.rows.stop - begin)
        part = batch.rows(self.piece).rows(rows, trim=False)
        if self.blank:
            part = replace(part, targets=np.full_like(part.targets, IGNORED))
        return part


def portions(rows: int, pieces: int, rank: int, world: int) -> list[Portion]:
    """Return what a process computes of a batch, piece by piece.

    Args:
        rows: of the batch.
        pieces: computed one after the other, as gradients are accumulated.
        rank: the process's number.
        world: how many processes there are.
    """
    chosen = []
    for piece in cuts(rows, pieces):
        parts = cuts(piece.stop - piece.start, world)
        blank = rank >= len(parts)
        part = slice(0, 1) if blank else parts[rank]
        own = slice(piece.start + part.start, piece.start + part.stop)
        chosen.append(Portion(piece, own, blank))
    return chosen


def places(chosen: Sequence[Portion]) -> list[int]:
    """Return the number of each computed row in the batch, in order; -1 for a blank one."""
    return [
        -1 if portion.blank else row
        for portion in chosen
        for row in range(portion.rows.start, portion.rows.stop)
    ]
