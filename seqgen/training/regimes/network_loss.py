"""How a network is trained that is no language model: by what it says that rows of text cost."""

from __future__ import annotations

from seqgen.configs.regimes import DEFAULT_REGIME
from seqgen.training.regimes.base import Loss, Regime, Rows, StepProgress


class NetworkLoss(Regime):
    """The model's own `loss` of the tokens, which predicts none of them from those before it."""

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        loss = self.reader.model.loss(rows.targets)
        return Loss(loss, loss, None)


REGIMES = {DEFAULT_REGIME: NetworkLoss}
