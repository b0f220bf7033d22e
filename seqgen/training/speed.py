"""How fast a model trains on this machine."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace

from seqgen.configs import TrainingConfig
from seqgen.data.batches import Batches
from seqgen.models.base import NeuralLanguageModel
from seqgen.training.loop import Trainer
from seqgen.training.run import Hooks

# A step at least of each, whatever it takes.
WARM_UP_SECONDS, MEASURED_SECONDS = 0.2, 0.8
PAIRS = 3


def speed(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> float:
    """Train within the budget for nothing but the time it takes; return tokens a second."""
    run = _trainer(model, batches, training).train()
    return run.tokens / run.seconds


def speed_at_first(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> float:
    """Return tokens a second, whatever the budget in minutes: a second of training shows it."""
    # The first steps find memory and kernels.
    speed(model, batches, replace(training, minutes=WARM_UP_SECONDS / 60))
    return speed(model, batches, replace(training, minutes=MEASURED_SECONDS / 60))


def times_as_fast(one: Callable[[], float], other: Callable[[], float]) -> float:
    """Return the median of one speed over another, measured in turn.

    Neighbours in time share what else the machine does.
    """
    return statistics.median(one() / other() for _ in range(PAIRS))


def compiled_speedup(
    model: NeuralLanguageModel, batches: Batches, training: TrainingConfig
) -> tuple[float, str | None]:
    """Return how many times as fast a model with `over_tensors` trains compiled.

    Returns:
        That, and None; or 0 and why it cannot be compiled here.
    """
    why_not = _trainer(model, batches, training).compile()
    if why_not is not None:
        return 0.0, why_not
    training = replace(training, minutes=MEASURED_SECONDS / 60)

    def compiled() -> float:
        model.compile_training()
        return speed(model, batches, training)

    def plain() -> float:
        model.forget_compiled()
        return speed(model, batches, training)

    return times_as_fast(compiled, plain), None


def _trainer(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> Trainer:
    nothing = Hooks(keep_best=_pass, checkpoint=_pass, report=lambda event: None)
    return Trainer(model, batches, training, nothing)


def _pass() -> None:
    """What the loop asks to have kept is not wanted."""
