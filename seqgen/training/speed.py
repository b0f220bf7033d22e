"""How fast a model trains on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from seqgen.configs import TrainingConfig
from seqgen.data.batches import Batches
from seqgen.errors import SeqgenError
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.precision import Precision
from seqgen.training.loop import Trainer
from seqgen.training.run import Hooks

# A step at least of each, whatever it takes.
WARM_UP_SECONDS, MEASURED_SECONDS = 0.2, 0.8
PAIRS = 3
# Of a trial of bf16, and of each of its pieces; and from which gain on it is worth the rounding.
TRIAL_SECONDS, SLICE_SECONDS, LEAST_BF16_SPEEDUP = 1.0, 0.1, 1.1


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


def bf16_speedup(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> float:
    """Return how many times as fast as in float32 a model trains in bf16; 0 if it diverges.

    It takes a second, or a step of each where steps are that long.
    """
    often = dict.fromkeys(("steps", "epochs", "validate_every", "patience", "checkpoint_every"))
    short = replace(training, **often, minutes=SLICE_SECONDS / 60, compile=False)
    until = time.monotonic() + TRIAL_SECONDS
    ratios: list[float] = []
    try:
        while len(ratios) <= PAIRS and (not ratios or time.monotonic() < until):
            reduced, plain = (
                speed(model, batches, replace(short, precision=precision))
                for precision in ("bf16", "float32")
            )
            ratios.append(reduced / plain)
    except SeqgenError:
        return 0.0
    # The first steps find memory and kernels; they count where there is time for no others.
    return statistics.median(ratios[1:] or ratios)


def faster_precision(speedup: float) -> Precision:
    """Return bf16 if it is so many times as fast that its rounding is worth it, or float32."""
    return "bf16" if speedup >= LEAST_BF16_SPEEDUP else "float32"


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
