"""Learning-rate schedules: the rate as a share of its peak, as a function of progress."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from seqgen.configs import TrainingConfig


@dataclass(frozen=True)
class After:
    """The progress of training after its warm-up.

    Attributes:
        share: of the budget that was left after warm-up, 0 to 1.
        units: in lengths of the warm-up; in steps where there is none.
    """

    share: float
    units: float


def _step(config: TrainingConfig, after: After) -> float:
    # Rounding must not hide that three steps of a third make a whole.
    return config.step_factor ** math.floor(after.share / config.step_share + 1e-9)


def _stable_then_down(config: TrainingConfig, after: After) -> float:
    return min(1.0, (1 - after.share) / config.decay_share)


# Each maps the progress after warm-up to a share of the peak rate.
DECAYS: dict[str, Callable[[TrainingConfig, After], float]] = {
    "constant": lambda config, after: 1.0,
    # Robbins and Monro (1951): alpha_0 / (1 + k).
    "inverse_time": lambda config, after: 1 / (1 + after.units),
    # After a warm-up of w steps this is sqrt(w / k) at step k (Vaswani et al. 2017, section 5.3).
    "inverse_sqrt": lambda config, after: (1 + after.units) ** -0.5,
    "step": _step,
    "cosine": lambda config, after: 0.5 * (1 + math.cos(math.pi * after.share)),
    "linear": lambda config, after: 1 - after.share,
    # With its own start, `begins`, Howard and Ruder (2018, equation 3).
    "slanted_triangular": lambda config, after: 1 - after.share,
    # Warm-up, stable, decay (Hu et al. 2024).
    "wsd": _stable_then_down,
}
# A rate of exactly 0 would waste the first step of a run with a budget in minutes.
LEAST = 0.01


def begins(config: TrainingConfig) -> float:
    """Return the share of the peak from which the rate rises."""
    return config.min_lr if config.schedule == "slanted_triangular" else 0.0


def rate(config: TrainingConfig, progress: float, step: int) -> float:
    """Return the rate as a share of its peak.

    It rises linearly over `config.warmup`, then decays to `config.min_lr`.

    Args:
        config: names the schedule.
        progress: how much of the budget is spent, 0 to 1.
        step: steps done, k.
    """
    warmup = config.warmup
    if progress < warmup:
        begin = begins(config)
        return max(LEAST, begin + (1 - begin) * progress / warmup)
    past = progress - warmup
    after = After(min(1.0, past / (1 - warmup)), past / warmup if warmup else step)
    return config.min_lr + (1 - config.min_lr) * DECAYS[config.schedule](config, after)
