"""The lectures' problem for stochastic gradients: the mean of 21 points, by every update rule.

minimise L(theta) = 1/21 sum_i (x_i - theta)^2 over x = -10, -9, ..., 10, from theta_0 = -20. The
answer is 0. A stochastic step takes the gradient of one point, drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from seqgen.hashing import uniforms
from seqgen.settings.training import TrainingConfig
from seqgen.training.optimizers import OPTIMIZERS, ParameterGroup

POINTS = np.arange(-10.0, 11.0)
START, RATE = -20.0, 0.5
# The first word of the hash that draws points.
DRAW = 21

# Rates by step k, from 0, as a share of alpha_0. The lectures count the second decay from 1.
DECAYS: Mapping[str, Callable[[int], float]] = {
    "constant": lambda k: 1.0,
    "alpha_0/(1+k)": lambda k: 1 / (1 + k),
    "alpha_0/sqrt(k)": lambda k: (1 + k) ** -0.5,
}


@dataclass(frozen=True, kw_only=True)
class ThetaPath:
    """The way of one rule; the keys of `python -m tests.benchmarks points --json`, in order.

    Attributes:
        rule: the update rule, with its settings.
        gradient: "full", of all points, or "stochastic", of one.
        decay: how the rate falls, a name in `DECAYS`.
        final: theta after the last step.
        final_loss: L at that.
        mean_distance: the mean of |theta| over the last tenth of the steps.
        path: theta from theta_0 on.
    """

    rule: str
    gradient: str
    decay: str
    final: float
    final_loss: float
    mean_distance: float
    path: list[float]


@dataclass(frozen=True)
class Case:
    """What is run: a rule with settings, a gradient, a decay."""

    rule: str
    settings: Mapping[str, float | bool]
    gradient: str = "stochastic"
    decay: str = "constant"

    @property
    def name(self) -> str:
        """The rule and the settings that are not its defaults."""
        given = (f"{key}={value}" for key, value in self.settings.items())
        return " ".join([self.rule, *given]).replace("=True", "")


CASES = (
    Case("sgd", {}, "full"),
    *(Case("sgd", {}, decay=decay) for decay in DECAYS),
    Case("sgd", {"momentum": 0.9}),
    Case("sgd", {"momentum": 0.9, "dampening": 0.9}),
    Case("sgd", {"momentum": 0.9, "nesterov": True}),
    *(Case(rule, {}) for rule in OPTIMIZERS if rule != "sgd"),
    Case("adagrad", {"adagrad_window": 10}),
    Case("adagrad", {"eps_inside": True}),
    Case("rmsprop", {"eps_inside": True}),
    Case("adam", {"eps_inside": True}),
    *(Case(rule, {}, decay="alpha_0/(1+k)") for rule in OPTIMIZERS if rule != "sgd"),
)


def drawn(steps: int, seed: int) -> np.ndarray:
    """Return the numbers (steps,) of the points that a stochastic run draws, 0 to 20."""
    return (uniforms(DRAW, seed, 0, np.arange(steps)) * POINTS.size).astype(np.int64)


def measure(steps: int, rate: float, seed: int) -> list[ThetaPath]:
    """Return the way of every case, which all draw the same points.

    Args:
        steps: of each.
        rate: alpha_0.
        seed: draws the points.
    """
    return [_run(case, drawn(steps, seed), rate) for case in CASES]


def _run(case: Case, points: np.ndarray, rate: float) -> ThetaPath:
    theta = nn.Parameter(torch.full((1, 1), START, dtype=torch.float64))
    config = TrainingConfig(
        optimizer=case.rule,
        lr=rate,
        muon_lr=rate,
        weight_decay=0.0,
        precision="float64",
        steps=len(points),
        **case.settings,
    )
    group = ParameterGroup(theta, 0, 1.0, (1,))
    (optimizer,) = OPTIMIZERS[case.rule]([group], config)
    path = [START]
    for k, point in enumerate(points.tolist()):
        seen = POINTS if case.gradient == "full" else POINTS[point]
        theta.grad = torch.full_like(theta, float(np.mean(2 * (path[-1] - seen))))
        for parameters in optimizer.param_groups:
            parameters["lr"] = rate * DECAYS[case.decay](k)
        optimizer.step()
        path.append(float(theta.detach()))
    last = path[-max(1, len(points) // 10) :]
    return ThetaPath(
        rule=case.name,
        gradient=case.gradient,
        decay=case.decay,
        final=path[-1],
        final_loss=float(np.mean((POINTS - path[-1]) ** 2)),
        mean_distance=float(np.mean(np.abs(last))),
        path=path,
    )
