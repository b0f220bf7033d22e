"""Training sources with unknown tokens in them, so that `<unk>` means something to a model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seqgen.data.batches import Batch, Batches
from seqgen.data.sources import Source
from seqgen.hashing import uniforms

SOURCE_UNKNOWNS = 5  # the first word of the hash that draws them


class UnknownsInSources(Batches):
    """Batches some of whose source tokens are replaced by `<unk>`, drawn anew in every step.

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
        super().__init__(batches.corpus, batches.batch_size, batches.seq_len, batches.seed)
        self._batches, self._probability, self._unk_id = batches, probability, unk_id
        self._start = start

    @property
    def steps_per_epoch(self) -> int:
        return self._batches.steps_per_epoch

    def batch(self, step: int) -> Batch:
        batch = self._batches.batch(step)
        values, lengths = batch.source.values, batch.source.lengths
        rows, columns = np.arange(len(values))[:, None], np.arange(values.shape[1])
        uniform = uniforms(SOURCE_UNKNOWNS, self.seed, step, rows, columns)  # (S, L)
        drawn = uniform < self._probability
        ends = lengths[:, None]
        drawn &= (columns > 0) & (columns < ends) if self._start else columns < ends - 1
        return replace(batch, source=Source(np.where(drawn, self._unk_id, values), lengths))
