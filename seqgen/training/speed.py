"""Measure how fast a model trains on this machine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from seqgen import ranks
from seqgen.engines.precision import Precision, restored_randomness
from seqgen.errors import SeqgenError
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.network import copy_network
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import Batches, FirstTokens
from seqgen.training.deadline import Deadline
from seqgen.training.loop import Trainer
from seqgen.training.row_threads import can_divide_rows
from seqgen.training.run import Hooks, Listener, Run

# Speeds are measured in slices of a trial, each of at least a step, until the two fastest of every
# way to train agree to within a share of them, or the trial has been long.
SLICE_SECONDS, LEAST_SLICES, AGREEMENT, LONG_TRIAL_SECONDS = 0.1, 3, 0.03, 5.0
# A trial takes at most this share of the time that is left for trials, but so many seconds for
# three slices of two ways to train: the first slice of each sets up, and other work slows some.
SHARE_OF_TIME_LEFT, SHORTEST_TRIAL_SECONDS = 0.4, 0.6
MEASURED_SECONDS = 0.8  # of a compiled model
# bf16 is worth its rounding from this speedup on.
LEAST_BF16_SPEEDUP = 1.1
# The losses of so long a training may be larger in bf16 than in float32 by this share. Measured:
# 0.05 % where all is well; two seeds differ by 0.6 % and more.
CURVE_SECONDS, MOST_LOSS_GAP = 0.3, 0.005
# A step of a trial takes this share of the time that is left for trials, within these limits in
# seconds: of longer ones it takes some rows, or part of one. The first step of any shape takes up
# to 0.2 seconds more to set up. So many tokens are tried first.
STEP_SHARE, SHORTEST_STEP, LONGEST_STEP, FIRST_TOKENS = 0.05, 0.3, 1.0, 64


def speed(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> float:
    """Train for the budget only to measure the speed in tokens per second."""
    run = _trainer(model, batches, training).train()
    return ranks.broadcast(run.tokens / run.seconds)


def fastest(
    model: NeuralLanguageModel,
    batches: Batches,
    ways: Sequence[TrainingConfig],
    deadline: Deadline,
) -> list[float]:
    """Measure the highest speed of each training variant, in tokens per second, in short slices.

    Raises:
        SeqgenError: training diverges.
    """
    batches = with_short_steps(model, batches, ways, deadline)
    timed = [_timed(way, SLICE_SECONDS) for way in ways]
    return highest([functools.partial(speed, model, batches, way) for way in timed], deadline)


def with_short_steps(
    model: NeuralLanguageModel,
    batches: Batches,
    ways: Sequence[TrainingConfig],
    deadline: Deadline,
) -> Batches:
    """Make trial batches: whole batches, or as many rows as fit the time limit.

    Time grows with the tokens, and some of it is the same for any number. So what a few tokens
    take, at best, says how many more are within the limit at least.

    Args:
        model: the one that is tried.
        batches: those of training.
        ways: the training variants.
        deadline: of all trials; a step takes a small share of what is left.

    Raises:
        SeqgenError: training diverges.
    """
    limit = min(LONGEST_STEP, max(SHORTEST_STEP, STEP_SHARE * ranks.broadcast(deadline.left)))
    tokens = FIRST_TOKENS
    while tokens < batches.batch(0).tokens.size:
        some, possible = FirstTokens(batches, tokens), 0.0
        # The first steps of a process may take seconds to set up.
        for _ in range(LEAST_SLICES if tokens == FIRST_TOKENS else 1):
            runs = [_trainer(model, some, _of_steps(way, 1)).train() for way in ways]
            seconds = ranks.broadcast(max(run.seconds for run in runs))
            possible = max(possible, some.batch(0).tokens.size * limit / seconds)
            if possible >= 1.5 * tokens:
                break
        else:
            return some
        tokens = int(possible)
    return batches


def highest(measures: Sequence[Callable[[], float]], deadline: Deadline) -> list[float]:
    """Run measurements in alternation and keep the highest value of each.

    Of speeds the highest count, because other load on the machine, allocating memory and selecting
    kernels only slow steps down.
    """
    values: list[list[float]] = [[] for _ in measures]
    seconds = max(SHORTEST_TRIAL_SECONDS, SHARE_OF_TIME_LEFT * deadline.left)
    slot, done = Deadline.after(min(LONG_TRIAL_SECONDS, seconds)), False
    while not done:
        for measure, found in zip(measures, values, strict=True):
            found.append(measure())
        enough = len(values[0]) >= LEAST_SLICES and all(map(_nearly_equal, values))
        done = ranks.broadcast(enough) or slot.is_over
    return [max(found) for found in values]


def _timed(training: TrainingConfig, seconds: float) -> TrainingConfig:
    """Change settings to train for so many seconds, without validation."""
    return replace(_of_steps(training, None), minutes=seconds / 60)


def _of_steps(training: TrainingConfig, steps: int | None) -> TrainingConfig:
    """Change settings to train for so many steps, without validation."""
    often = dict.fromkeys(("minutes", "epochs", "validate_every", "patience", "checkpoint_every"))
    return replace(training, **often, steps=steps)


def _nearly_equal(speeds: Sequence[float]) -> bool:
    """Check whether the two highest speeds are about equal."""
    *_, second, highest = sorted(speeds)
    return second >= (1 - AGREEMENT) * highest


def speeds_by_threads(
    model: NeuralLanguageModel, batches: Batches, training: TrainingConfig, deadline: Deadline
) -> dict[int | None, float]:
    """Measure tokens per second by number of row threads, for each number that is open."""
    ways = ways_to_divide(model, training)
    speeds = fastest(model, batches, ways, deadline)
    return {way.row_threads: speed for way, speed in zip(ways, speeds, strict=True)}


def ways_to_divide(model: NeuralLanguageModel, training: TrainingConfig) -> list[TrainingConfig]:
    """List the ways to use the cores that are left open: within operations, or by rows."""
    threads = torch.get_num_threads()
    is_open = training.row_threads is None and can_divide_rows(model, training)
    counts = (1, threads) if is_open and threads > 1 else (training.row_threads,)
    return [replace(training, row_threads=count) for count in counts]


def speed_ratio(one: Callable[[], float], other: Callable[[], float], deadline: Deadline) -> float:
    """Measure the ratio of two speeds; see `highest`."""
    speeds = highest([one, other], deadline)
    return speeds[0] / speeds[1]


def bf16_speedup(
    model: NeuralLanguageModel, batches: Batches, training: TrainingConfig, deadline: Deadline
) -> tuple[float, list[tuple[TrainingConfig, float]]]:
    """Measure the training speed in bf16 over float32, with rows divided among threads if possible.

    Returns:
        The ratio; 0 if the loss suffers from bf16, where it diverges or the first steps reach a
        higher loss than in float32. And both ways to train with their speeds, in tokens per second;
        none if it diverges.
    """
    untrained, rows = copy_network(model), ways_to_divide(model, training)[-1]
    ways = [replace(rows, precision=kind, compile=False) for kind in ("bf16", "float32")]
    try:
        speeds = fastest(model, batches, ways, deadline)
        speedup, measured = speeds[0] / speeds[1], list(zip(ways, speeds, strict=True))
        if faster_precision(speedup) == "bf16":
            batches = with_short_steps(model, batches, ways, deadline)
            if _loss_gap(untrained, batches, ways[1]) > MOST_LOSS_GAP:
                return 0.0, measured
    except SeqgenError:
        return 0.0, []
    return speedup, measured


def _loss_gap(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> float:
    """Compute how much worse the first steps are in bf16 than in float32, relative to the loss.

    Both begin with the same weights, batches and random states, and take the same steps. Where
    training diverges in float32 too, it is not bf16's fault.
    """
    timed = _timed(replace(training, precision="float32"), CURVE_SECONDS)
    with restored_randomness(model.device):
        try:
            steps = _trainer(copy_network(model), batches, timed).train().step
        except SeqgenError:
            return 0.0
    same = _of_steps(timed, ranks.broadcast(steps))
    losses = {}
    for precision in ("float32", "bf16"):
        with restored_randomness(model.device):
            trained = copy_network(model)
            losses[precision] = sum(_losses(trained, batches, replace(same, precision=precision)))
    return ranks.broadcast(losses["bf16"] / losses["float32"] - 1)


class _Curve(Listener):
    """Listener that records the loss of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def stepped(self, run: Run, loss: float, norm: float) -> None:
        self.losses.append(loss)


def _losses(model: NeuralLanguageModel, batches: Batches, training: TrainingConfig) -> list[float]:
    """Train for the budget; return the loss of each step in nats per token."""
    curve = _Curve()
    _trainer(model, batches, training, curve).train()
    return curve.losses


def faster_precision(speedup: float) -> Precision:
    """Choose bf16 if it is at least `LEAST_BF16_SPEEDUP` times as fast, else float32."""
    return "bf16" if speedup >= LEAST_BF16_SPEEDUP else "float32"


def compiled_speedup(
    model: NeuralLanguageModel, batches: Batches, training: TrainingConfig
) -> tuple[float, str | None]:
    """Measure the training speed of a compiled model over an uncompiled one.

    Returns:
        The ratio and None; or 0 and why it cannot be compiled here.
    """
    batches = with_short_steps(model, batches, [training], Deadline())
    why_not = _trainer(model, batches, training).compile()
    if why_not is not None:
        return 0.0, why_not
    training = _timed(training, MEASURED_SECONDS)

    def compiled() -> float:
        model.compile_training()
        return speed(model, batches, replace(training, compile=True))

    def plain() -> float:
        model.forget_compiled()
        return speed(model, batches, training)

    return speed_ratio(compiled, plain, Deadline()), None


def _trainer(
    model: NeuralLanguageModel,
    batches: Batches,
    training: TrainingConfig,
    listener: Listener | None = None,
) -> Trainer:
    return Trainer(model, batches, training, Hooks(listener=listener or Listener()))
