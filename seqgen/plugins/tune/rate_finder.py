"""Learning-rate range test: the rate increases at each step until the loss rises (Smith 2017)."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen.engines.precision import choose_device, parameter_type, restored_randomness
from seqgen.interrupts import ending_as_ctrl_c
from seqgen.models.base import NeuralLanguageModel
from seqgen.settings import require
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import Batches
from seqgen.training.events import Report
from seqgen.training.loop import Trainer
from seqgen.training.plan import Plan
from seqgen.training.run import Diverged, Hooks, Listener, Run
from seqgen.training.train import RunRequest, prepare_run

# The ramp: its steps, and where it begins and ends in units of the settings' own rate.
STEPS, LOWEST, HIGHEST = 100, 1e-4, 1e3
# The moving mean of losses, and how far it may rise above its lowest before the ramp ends.
SMOOTHING, ENOUGH = 0.8, 1.5
# What is suggested, as a share of the rate at which the smoothed loss is lowest.
SAFE = 0.1


@dataclass(frozen=True, kw_only=True)
class RampPoint:
    """Learning rate and loss of one step of the range test.

    Attributes:
        step: from 0.
        lr: the rate of the step.
        loss: before its update, nats per token.
        smoothed: the moving mean of the losses so far.
    """

    step: int
    lr: float
    loss: float
    smoothed: float


@dataclass(frozen=True, kw_only=True)
class FoundRate:
    """Last record of `seqgen find-lr --json`.

    Attributes:
        suggested_lr: a tenth of `lowest_loss_lr`.
        lowest_loss_lr: the rate at which the smoothed loss was lowest.
        steepest_lr: the rate at which it fell fastest, by the logarithm of the rate.
        steps: how many there were.
    """

    suggested_lr: float
    lowest_loss_lr: float
    steepest_lr: float
    steps: int


def share_of_highest(step: int) -> float:
    """Compute a step's learning rate as a share of the highest; it grows geometrically."""
    return (LOWEST / HIGHEST) ** (1 - step / (STEPS - 1))


class Ramp(Trainer):
    """Training loop with a learning rate that grows geometrically."""

    def rate(self, share: float, step: int) -> float:
        return share_of_highest(step)


class _Points(Listener):
    """Listener that records the losses of the range test."""

    def __init__(self, highest: float, report: Callable[[RampPoint], None]) -> None:
        self.points: list[RampPoint] = []
        self._highest, self._report, self._mean = highest, report, 0.0

    def stepped(self, run: Run, loss: float, norm: float) -> None:
        step = len(self.points)
        self._mean = SMOOTHING * self._mean + (1 - SMOOTHING) * loss
        smoothed = self._mean / (1 - SMOOTHING ** (step + 1))
        lr = self._highest * share_of_highest(step)
        self.points.append(RampPoint(step=step, lr=lr, loss=loss, smoothed=smoothed))
        self._report(self.points[-1])

    def stop(self, run: Run) -> str | None:
        """Stop once the loss has risen far above its lowest value; return the reason."""
        if not self.points:
            return None
        lowest = min(point.smoothed for point in self.points)
        return "diverged" if self.points[-1].smoothed > ENOUGH * lowest else None


def find_rate(
    model: NeuralLanguageModel,
    batches: Batches,
    config: TrainingConfig,
    report: Callable[[RampPoint], None],
) -> tuple[list[RampPoint], FoundRate]:
    """Run the range test on a model, which ruins its weights, and suggest a learning rate.

    Args:
        model: as training would begin with it.
        batches: the training part.
        config: of the run that the rate is for; its own rate is the middle of the ramp.
        report: takes each point.

    Raises:
        Diverged: at the first step.
    """
    scale = {name: getattr(config, name) for name in ("lr", "muon_lr")}
    raised = {name: lr and lr * HIGHEST for name, lr in scale.items()}
    plain = {"epochs": None, "minutes": None, "patience": None, "ema": None, "unfreeze": 0.0}
    config = dataclasses.replace(config, **raised, **plain, steps=STEPS, checkpoint_every=None)
    points = _Points(config.lr, report)
    with contextlib.suppress(Diverged):
        Ramp(model, batches, config, Hooks(stop=points.stop, listener=points)).train()
    if not points.points:
        raise Diverged("the loss is not a number at the first step, whatever the rate")
    return points.points, suggest(points.points)


def suggest(points: Sequence[RampPoint]) -> FoundRate:
    """Suggest a learning rate from the points of a range test."""
    lowest = min(range(len(points)), key=lambda i: points[i].smoothed)
    falls = [
        (after.smoothed - before.smoothed) / math.log(after.lr / before.lr)
        for before, after in itertools.pairwise(points[: lowest + 1])
    ]
    steepest = falls.index(min(falls)) if falls else lowest
    return FoundRate(
        suggested_lr=SAFE * points[lowest].lr,
        lowest_loss_lr=points[lowest].lr,
        steepest_lr=points[steepest].lr,
        steps=len(points),
    )


@ending_as_ctrl_c()
def find_rate_for(
    data: Sequence[str | Path],
    *,
    device: str = "auto",
    report: Report = lambda event: None,
    put: Callable[[RampPoint], None] = lambda point: None,
    **asked: Any,
) -> tuple[list[RampPoint], FoundRate]:
    """Run the range test with the model, data and settings that `train` would use.

    Args:
        data: see `train`.
        device: auto, cpu, cuda or mps.
        report: takes events of preparing.
        put: takes each step of the ramp.
        asked: other fields of `RunRequest`.

    Raises:
        UsageError: the architecture is not trained by gradients, or see `train`.
        Diverged: the loss is no number from the start.
    """
    place = choose_device(device)
    ready = prepare_run(NetworkAlone(data=data, **asked), place, report, _require_gradients)
    training = ready.training
    with restored_randomness(place):
        model = ready.initial_model()
        model.to(device=place, dtype=parameter_type(training.precision))
        batches = ready.prepared.batches_for(model, training)
        return find_rate(model, batches, training, put)


class NetworkAlone(RunRequest):
    """Request of a network without the n-gram model that `train` may add to it."""

    adds_ngrams = False


def _require_gradients(plan: Plan) -> None:
    """Raise an error for architectures that are not trained by gradients."""
    why = f"{plan.architecture} is not trained by gradients: it has no learning rate to find"
    require(not plan.is_estimated, why)
