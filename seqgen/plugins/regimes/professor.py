"""Professor forcing: a discriminator learns to distinguish free running from teacher forcing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from seqgen.engines.precision import restored_randomness
from seqgen.plugins.regimes.scheduled import FreeRunning
from seqgen.training.optimizers import fast_import
from seqgen.training.parts import CheckpointPart, ModelWeights, OptimizerState
from seqgen.training.reading import TrainingReader, to_device
from seqgen.training.regimes.base import Loss, Rows, StepProgress, TextRules

# Lamb et al. (2016), section 2.3: the model follows the discriminator only while it is right more
# often than the first, and the discriminator learns only while it is right less often than the
# second.
LEAST_ACCURACY, MOST_ACCURACY = 0.75, 0.99


@contextlib.contextmanager
def collect_features(reader: TrainingReader) -> Iterator[list[Tensor]]:
    """Within a block, collect the features (B, T, H) that enter the output layer."""
    kept: list[Tensor] = []
    handle = reader.model.head.register_forward_pre_hook(
        lambda head, inputs: kept.append(inputs[0])
    )
    try:
        yield kept
    finally:
        handle.remove()


class Discriminator(nn.Module):
    """Classifies feature sequences as real or generated: a bidirectional GRU and an MLP.

    Attributes:
        accuracy: the share of sequences that it judged rightly in the step before.
    """

    accuracy: Tensor

    def __init__(self, features: int, size: int) -> None:
        super().__init__()
        self.read = nn.GRU(features, size, batch_first=True, bidirectional=True)
        self.judge = nn.Sequential(nn.Linear(2 * size, size), nn.ReLU(), nn.Linear(size, 1))
        self.register_buffer("accuracy", torch.tensor(0.5))

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Compute the log-odds (B,) that feature sequences (B, T, H) come from real text."""
        packed = pack_padded_sequence(features, lengths, batch_first=True, enforce_sorted=False)
        _, last = self.read(packed)  # (2, B, size)
        return self.judge(last.transpose(0, 1).flatten(1)).squeeze(-1)


class ProfessorForcing(FreeRunning):
    """Professor forcing (Lamb et al. 2016, equations 1 to 4, without the optional C_t).

    The model reads the real text, and beside it runs free from a prefix. With D the probability
    that features come from the real text,

        model:          -log p(x) - weight log D(features of the free run)
        discriminator:  -log D(features of the real text) - log(1 - D(features of the free run))

    The first's second term counts only while the discriminator's accuracy is above 75 %, and
    the discriminator learns only while it is below 99 %; both go by the accuracy of the step
    before. The discriminator has an Adam of its own.
    """

    def __init__(self, reader: TrainingReader, text_rules: TextRules) -> None:
        super().__init__(reader, text_rules)
        config, head = self.config, reader.model.head
        with restored_randomness(reader.model.device):
            torch.manual_seed(config.seed)
            self.discriminator = Discriminator(head.in_features, config.discriminator_size)
        self.discriminator.to(head.weight.dtype)
        self._optimizer = fast_import(torch.optim.Adam)(
            self.discriminator.parameters(), lr=config.discriminator_lr
        )

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        reader = self.reader
        mixed = to_device(self.mixed(rows, progress), rows.device)
        with collect_features(reader) as real:
            reading = self.read(rows)
        with collect_features(reader) as free:
            reader.read(mixed, rows.past, rows.batch.source)
        minimised, nats = reader.costs(reading, rows.targets)
        judged = rows.scored.any(1)  # a row whose document has ended is no sequence
        if not judged.any():
            return Loss(minimised, nats, reading.state)
        lengths = torch.from_numpy(rows.scored[judged].cumsum(1).argmax(1) + 1)
        there = torch.from_numpy(judged).to(rows.device)
        kind = reader.model.head.weight.dtype
        real, free = (torch.cat(parts, 1)[there].to(kind) for parts in (real, free))
        return Loss(minimised + self._adversarial(real, free, lengths), nats, reading.state)

    def _adversarial(self, real: Tensor, free: Tensor, lengths: Tensor) -> Tensor:
        """Compute the discriminator's loss and the model's adversarial loss.

        Args:
            real: (B, T, H), features of the real text.
            free: (B, T, H), features of the free run.
            lengths: B of them.
        """
        judge, total = self.discriminator, real.new_zeros(())
        of_real, of_free = judge(real.detach(), lengths), judge(free.detach(), lengths)
        right = (of_real > 0).sum() + (of_free < 0).sum()
        self.note("discriminator_accuracy", right, 2 * len(of_real))
        accuracy = judge.accuracy.item()
        if accuracy < MOST_ACCURACY:
            total = total - F.logsigmoid(of_real).sum() - F.logsigmoid(-of_free).sum()
        if accuracy > LEAST_ACCURACY:
            # The model's gradient passes through the discriminator and leaves none there.
            judge.requires_grad_(False)
            fooled = F.logsigmoid(judge(free, lengths)).sum()
            judge.requires_grad_(True)
            total = total - self.config.adversarial_weight * fooled
        return total

    def end_step(self) -> None:
        accuracy = self.discriminator.accuracy
        if accuracy.item() < MOST_ACCURACY:
            self._optimizer.step()
        # A batch without a scored target, as one of labels alone, leaves it as it was.
        accuracy.fill_(self.figures().get("discriminator_accuracy", accuracy.item()))

    def parts(self) -> dict[str, CheckpointPart]:
        return {
            "discriminator": ModelWeights(self.discriminator),
            "discriminator_optimizer": OptimizerState([self._optimizer]),
        }
