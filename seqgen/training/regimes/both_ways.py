"""How language models of both directions are trained that share weights."""

from __future__ import annotations

from seqgen.configs import TrainingConfig
from seqgen.configs.regimes import DEFAULT_REGIME
from seqgen.training.reading import Reader, sent
from seqgen.training.regimes.base import Loss, Regime, Rows, StepProgress, TextRules


class BothWays(Regime):
    """The sum of both log-likelihoods (Peters et al. 2018, section 3.1).

    What is reported is the mean of both, in nats per token, and each of them.
    """

    def __init__(self, reader: Reader, config: TrainingConfig, text_rules: TextRules) -> None:
        super().__init__(reader, config, text_rules)
        both = reader.model.forwards, reader.model.backwards
        self._readers = tuple(Reader(model, config) for model in both)

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        batches, costs = (rows.batch, rows.batch.backward), []
        for name, reader, batch in zip(
            ("forward", "backward"), self._readers, batches, strict=True
        ):
            tokens, targets = (sent(ids, rows.device) for ids in (batch.tokens, batch.targets))
            minimised, nats = reader.costs(reader.read(tokens, None), targets)
            self.note(f"{name}_loss", nats.detach(), batch.count)
            costs.append((minimised, nats))
        minimised, nats = (sum(each) for each in zip(*costs, strict=True))
        return Loss(minimised, nats / 2, None)


REGIMES = {DEFAULT_REGIME: BothWays}
