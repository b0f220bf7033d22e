"""What a training step minimises: a module that the loop, a compiler or a wrapper can call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from seqgen.configs import TrainingConfig
from seqgen.data.batches import Batch
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.state import State
from seqgen.training.reading import Reader, sent


@dataclass(frozen=True)
class StepProgress:
    """Where training is.

    Attributes:
        step: the number of the step, from 0.
        share: how much of the budget is spent, 0 to 1.
        first_row: the number of the first of these rows in the step's batch, which may be
            processed in parts.
    """

    step: int
    share: float
    first_row: int = 0


class Loss(NamedTuple):
    """What an objective returns for some rows.

    Attributes:
        minimised: what is to be minimised, summed over the rows' targets.
        nats: the cross-entropy of the targets alone, summed.
        state: after the rows, with its graph; None if there is none to carry.
    """

    minimised: Tensor
    nats: Tensor
    state: State | None


class Objective(nn.Module):
    """A model under what it is trained for: cross-entropy by teacher forcing, and penalties.

    Args:
        model: on its device, in its parameters' type.
        config: with a precision that is not "auto".
    """

    def __init__(self, model: NeuralLanguageModel, config: TrainingConfig) -> None:
        super().__init__()
        self.model = model
        self._reader = Reader(model, config)

    def forward(self, batch: Batch, state: State | None, progress: StepProgress) -> Loss:
        """Return the loss of a batch, or of some of its rows.

        Args:
            batch: the rows.
            state: the state before them, if one is carried, without its graph.
            progress: where training is.
        """
        device = self.model.device
        tokens, targets = sent(batch.tokens, device), sent(batch.targets, device)  # (B, T)
        reading = self._reader.read(tokens, state, batch.source, batch.advance)
        minimised, nats = self._reader.costs(reading, targets)
        return Loss(minimised, nats, reading.state)
