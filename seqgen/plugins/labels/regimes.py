"""Training regimes of classifiers and taggers, and of ELMo's two language models."""

from __future__ import annotations

from seqgen.training.reading import TrainingReader, to_device
from seqgen.training.regimes.base import Loss, Regime, Rows, StepProgress, TextRules


class Predicting(Regime):
    """Training regime of label models: cross-entropy of labels or tags given the whole text."""

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        reading = self.reader.predict(rows.batch)
        # The sources of a piece of a batch may be shorter than the longest of the batch.
        targets = rows.targets[:, : reading.logits.shape[1]]
        minimised, nats = self.reader.costs(reading, targets)
        return Loss(minimised, nats, reading.state)


class BothDirections(Regime):
    """Training regime of ELMo: forward plus backward log-likelihood (Peters et al. 2018).

    What is reported is the mean of both, in nats per token, and each of them.
    """

    def __init__(self, reader: TrainingReader, text_rules: TextRules) -> None:
        super().__init__(reader, text_rules)
        both = reader.model.forwards, reader.model.backwards
        self._readers = tuple(TrainingReader(model, self.config) for model in both)

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        batches, costs = (rows.batch, rows.batch.backward), []
        for name, reader, batch in zip(
            ("forward", "backward"), self._readers, batches, strict=True
        ):
            tokens, targets = (to_device(ids, rows.device) for ids in (batch.tokens, batch.targets))
            minimised, nats = reader.costs(reader.read(tokens, None), targets)
            self.note(f"{name}_loss", nats.detach(), batch.count)
            costs.append((minimised, nats))
        minimised, nats = (sum(each) for each in zip(*costs, strict=True))
        return Loss(minimised, nats / 2, None)
