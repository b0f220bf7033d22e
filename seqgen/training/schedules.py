"""Learning-rate schedules, as functions of the share of the budget that is spent."""

from __future__ import annotations

import math
from collections.abc import Callable

from seqgen.configs import TrainingConfig

# From the share of the time after warm-up (0 to 1) to the share of the peak rate.
DECAYS: dict[str, Callable[[float], float]] = {
    "constant": lambda share: 1.0,
    "linear": lambda share: 1.0 - share,
    "cosine": lambda share: 0.5 * (1 + math.cos(math.pi * share)),
}
# A rate of exactly nothing would waste the first step of a run timed by the clock.
LEAST = 0.01


def rate(config: TrainingConfig, progress: float) -> float:
    """Return the rate as a share of its peak, at `progress` (0 to 1) through the budget.

    It rises linearly over `config.warmup`, then decays to `config.min_lr`.
    """
    if progress < config.warmup:
        return max(LEAST, progress / config.warmup)
    share = min(1.0, (progress - config.warmup) / (1 - config.warmup))
    return config.min_lr + (1 - config.min_lr) * DECAYS[config.schedule](share)
