"""Teacher forcing, and losses of other than language models."""

from __future__ import annotations

from torch import Tensor

from seqgen.training.regimes.base import Loss, Regime, Rows, StepProgress


class TeacherForcing(Regime):
    """Teacher forcing: the model reads the real text; -sum_t log p(x_t | x_1 ... x_{t-1})."""

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        tokens = self.tokens(rows, progress)
        if self.reader.suits_pieces(rows.batch):
            return Loss(*self.reader.costs_in_pieces(tokens, rows.past, rows.targets))
        reading = self.read(rows, tokens)
        minimised, nats = self.reader.costs(reading, rows.targets)
        return Loss(minimised, nats, reading.state)

    def tokens(self, rows: Rows, progress: StepProgress) -> Tensor:
        """Return the input tokens (B, T): the real ones."""
        return rows.tokens


class NetworkLoss(Regime):
    """Trains by the model's own `loss` method, for models that do not predict the next token."""

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        loss = self.reader.model.loss(rows.targets)
        return Loss(loss, loss, None)
