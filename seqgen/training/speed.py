"""How fast a model trains on this machine."""

from __future__ import annotations

from dataclasses import replace

from seqgen.configs import TrainingConfig
from seqgen.data.batches import Batches
from seqgen.models.base import NeuralLanguageModel
from seqgen.training.loop import Trainer
from seqgen.training.run import Hooks

# A step at least of each, whatever it takes.
WARM_UP_SECONDS, MEASURED_SECONDS = 0.2, 0.8


def speed(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> float:
    """Train within the budget for nothing but the time it takes; return tokens a second."""
    nothing = Hooks(keep_best=_pass, checkpoint=_pass, report=lambda event: None)
    run = Trainer(model, batches, training, nothing).train()
    return run.tokens / run.seconds


def speed_at_first(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> float:
    """Return tokens a second, whatever the budget in minutes: a second of training shows it."""
    # The first steps find memory and kernels.
    speed(model, batches, replace(training, minutes=WARM_UP_SECONDS / 60))
    return speed(model, batches, replace(training, minutes=MEASURED_SECONDS / 60))


def _pass() -> None:
    """What the loop asks to have kept is not wanted."""
