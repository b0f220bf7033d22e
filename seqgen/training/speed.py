"""How fast a model trains on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from seqgen import ranks
from seqgen.configs import TrainingConfig
from seqgen.data.batches import Batches
from seqgen.errors import SeqgenError
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.engines.precision import Precision, restored_randomness
from seqgen.models.network import copied
from seqgen.training.loop import Trainer
from seqgen.training.run import Hooks, Run, Watch

# At least one step of each, however long it takes.
WARM_UP_SECONDS, MEASURED_SECONDS = 0.2, 0.8
PAIRS = 3
# Of a trial of bf16, of one whose steps are long, and of each piece of it.
TRIAL_SECONDS, LONG_TRIAL_SECONDS, SLICE_SECONDS = 0.8, 5.0, 0.1
# bf16 is worth its rounding from this speedup on.
LEAST_BF16_SPEEDUP = 1.1
# The losses of so long a training may be larger in bf16 than in float32 by this share. Measured:
# 0.05 % where all is well; two seeds differ by 0.6 % and more.
CURVE_SECONDS, MOST_LOSS_GAP = 0.3, 0.005


def speed(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> float:
    """Train for the budget only to measure; return tokens per second."""
    run = _trainer(model, batches, training).train()
    return ranks.broadcast(run.tokens / run.seconds)


def speed_at_first(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> float:
    """Return tokens per second, measured in a second of training."""
    # The first steps allocate memory and select kernels.
    speed(model, batches, replace(training, minutes=WARM_UP_SECONDS / 60))
    return speed(model, batches, replace(training, minutes=MEASURED_SECONDS / 60))


def times_as_fast(one: Callable[[], float], other: Callable[[], float]) -> float:
    """Return the median ratio of two speeds, measured in alternation.

    Measurements next to each other in time share the load of the machine.
    """
    return statistics.median(one() / other() for _ in range(PAIRS))


def bf16_speedup(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> float:
    """Return the training speed in bf16 over that in float32; 0 if training suffers from bf16.

    That is where it diverges, or where the first steps reach a higher loss than in float32.
    Measuring takes about a second, or two steps of each if steps are long, or one if they are very
    long. The fastest measurement of each counts, because other load on the machine, allocating
    memory and selecting kernels only slow steps down.
    """
    often = dict.fromkeys(("steps", "epochs", "validate_every", "patience", "checkpoint_every"))
    short = replace(training, **often, minutes=SLICE_SECONDS / 60, compile=False)
    fastest = {"bf16": 0.0, "float32": 0.0}
    untrained = copied(model)
    began, pairs = time.monotonic(), 0
    try:
        while ranks.broadcast(pairs < 2 or time.monotonic() - began < TRIAL_SECONDS):
            for precision in fastest:  # in alternation: they share the machine's load
                reached = speed(model, batches, replace(short, precision=precision))
                fastest[precision] = max(fastest[precision], reached)
            pairs += 1
            if ranks.broadcast(time.monotonic() - began > LONG_TRIAL_SECONDS):
                break
        speedup = fastest["bf16"] / fastest["float32"]
        faster = faster_precision(speedup) == "bf16"
        if faster and _loss_gap(untrained, batches, short) > MOST_LOSS_GAP:
            return 0.0
    except SeqgenError:
        return 0.0
    return speedup


def _loss_gap(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> float:
    """Return by which share of the loss the first steps in bf16 are worse than in float32.

    Both begin with the same weights, batches and random states, and take the same steps. Where
    training diverges in float32 too, it is not bf16's fault.
    """
    timed = replace(training, minutes=CURVE_SECONDS / 60, precision="float32")
    with restored_randomness(model.device):
        try:
            steps = _trainer(copied(model), batches, timed).train().step
        except SeqgenError:
            return 0.0
    same = replace(training, minutes=None, steps=round(ranks.broadcast(float(steps))))
    losses = {}
    for precision in ("float32", "bf16"):
        with restored_randomness(model.device):
            trained = copied(model)
            losses[precision] = sum(_losses(trained, batches, replace(same, precision=precision)))
    return ranks.broadcast(losses["bf16"] / losses["float32"] - 1)


class _Curve(Watch):
    """Keeps the loss of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def stepped(self, run: Run, loss: float, norm: float) -> None:
        self.losses.append(loss)


def _losses(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> list[float]:
    """Train for the budget; return the loss of each step, in nats per token."""
    curve = _Curve()
    _trainer(model, batches, training, curve).train()
    return curve.losses


def faster_precision(speedup: float) -> Precision:
    """Return bf16 if it is at least `LEAST_BF16_SPEEDUP` times as fast, else float32."""
    return "bf16" if speedup >= LEAST_BF16_SPEEDUP else "float32"


def compiled_speedup(
    model: NeuralLanguageModel, batches: Batches, training: TrainingConfig
) -> tuple[float, str | None]:
    """Return the training speed of a compiled model over that of a plain one.

    Returns:
        The ratio and None; or 0 and why it cannot be compiled here.
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


def _trainer(
    model: NeuralLanguageModel,
    batches: Batches,
    training: TrainingConfig,
    watch: Watch | None = None,
) -> Trainer:
    nothing = Hooks(
        keep_best=_pass, checkpoint=_pass, report=lambda event: None, watch=watch or Watch()
    )
    return Trainer(model, batches, training, nothing)


def _pass() -> None:
    """Do nothing, in place of saving."""
