"""One training step's tokens, and parts of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from seqgen.data.sources import Source

# A target that does not count.
IGNORED = -100


@dataclass(frozen=True)
class Batch:
    """One step's tokens.

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
        """Return at most so many of the rows; `count` stays that of the whole batch."""
        return self.rows(slice(rows))

    def rows(self, cut: slice, trim: bool = True) -> Batch:
        """Return some of the rows; sources keep their padding unless it is to be trimmed."""
        source = None if self.source is None else self.source.part(cut, trim)
        return replace(self, tokens=self.tokens[cut], targets=self.targets[cut], source=source)


def cuts(rows: int, pieces: int) -> list[slice]:
    """Return at most so many parts of numbered rows, in order and of about the same size."""
    pieces = min(pieces, rows)
    return [slice(*pair) for pair in pairwise(rows * i // pieces for i in range(pieces + 1))]
