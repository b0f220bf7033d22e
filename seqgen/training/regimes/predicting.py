"""How a network is trained that predicts classes of what it has read as a whole."""

from __future__ import annotations

from seqgen.configs.regimes import DEFAULT_REGIME
from seqgen.training.regimes.base import Loss, Regime, Rows, StepProgress


class Predicting(Regime):
    """The cross-entropy of the targets under what the model predicts, such as labels."""

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        reading = self.reader.predict(rows.batch)
        # The sources of a piece of a batch may be shorter than the longest of the batch.
        targets = rows.targets[:, : reading.logits.shape[1]]
        minimised, nats = self.reader.costs(reading, targets)
        return Loss(minimised, nats, reading.state)


REGIMES = {DEFAULT_REGIME: Predicting}
