"""How a model is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from seqgen.configs.settings import (
    MOST_RATE,
    MOST_SEED,
    MOST_STEPS,
    MOST_TOKENS,
    Config,
    require,
    setting,
)

BUDGETS = ("steps", "epochs", "minutes")
# Why a run may end that has nothing left to do.
FINISHED = (*BUDGETS, "patience")
RESUMABLE = frozenset({*BUDGETS, "checkpoint_every", "keep"})
DEFAULT_MINUTES = 5.0

# What suits an update rule in the place of an architecture's recipe, which is made for adamw and
# muon: these rules add the decay to the gradient, and sgd's steps are of another size.
RULE_RECIPES: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"lr": 0.5, "momentum": 0.9, "weight_decay": 0.0},
    "adagrad": {"lr": 0.02, "weight_decay": 0.0},
    "rmsprop": {"lr": 2e-3, "weight_decay": 0.0},
    "adam": {"weight_decay": 0.0},
}

# By schedule, where they are not given: the share of the budget that warms up, and the rate that
# is left at the end. Howard and Ruder (2018) have 0.1 and 1/32 for the slanted triangle; the
# rates of Robbins and Monro fall from the first step on.
WARMUPS = {"inverse_time": 0.0, "slanted_triangular": 0.1}
LEAST_RATES = {"slanted_triangular": 1 / 32}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """How a model with parameters is trained by gradient descent.

    `warmup` and `min_lr` follow from the schedule where they are None, and are settled at once.
    """

    seq_len: int = setting(
        "tokens in a training window, k1; a transformer's window W", 64, low=1, high=MOST_TOKENS
    )
    k2: int | None = setting(
        "tokens that a carried state's gradient goes back; seq_len", None, low=1, high=MOST_TOKENS
    )
    batch_size: int = setting("windows (or documents) in a step", 32, low=1, high=MOST_TOKENS)
    accumulate: int = setting(
        "work a step's rows in so many pieces, to save memory", 1, low=1, high=MOST_TOKENS
    )
    reset_state: bool = setting("start every window from a zero state", False)
    optimizer: Literal["sgd", "adagrad", "rmsprop", "adam", "adamw", "muon"] = setting(
        "the update rule; muon for hidden matrices, with adamw for the rest", "adamw"
    )
    lr: float = setting("peak learning rate", 1e-3, above=0, high=MOST_RATE)
    muon_lr: float | None = setting(
        "Muon's peak rate; 5 lr unless given", None, above=0, high=MOST_RATE
    )
    momentum: float = setting("of sgd and rmsprop", 0.0, low=0, below=1)
    nesterov: bool = setting("sgd looks ahead along its momentum", False)
    dampening: float = setting(
        "share of the gradient that sgd's momentum leaves out", 0.0, low=0, high=1
    )
    schedule: Literal[
        "constant",
        "inverse_time",
        "inverse_sqrt",
        "step",
        "cosine",
        "linear",
        "slanted_triangular",
        "wsd",
    ] = setting("decay after warm-up", "linear")
    warmup: float | None = setting(
        "share of the budget in which the rate rises; 0.02", None, low=0, below=1
    )
    min_lr: float | None = setting("the decay's end, as a share of lr; 0", None, low=0, below=1)
    step_share: float = setting(
        "schedule=step: share of the time after warm-up between drops", 0.25, above=0, high=1
    )
    step_factor: float = setting(
        "schedule=step: what each drop leaves of the rate", 0.5, above=0, high=1
    )
    decay_share: float = setting(
        "schedule=wsd: share of the time after warm-up that decays", 0.2, above=0, high=1
    )
    weight_decay: float = setting(
        "decay of matrices (never of biases, gains); decoupled in adamw and muon",
        0.01,
        low=0,
        high=MOST_RATE,
    )
    beta1: float = setting("Adam's and AdamW's decay of the mean", 0.9, low=0, below=1)
    beta2: float = setting(
        "Adam's, AdamW's and RMSProp's decay of the square", 0.99, low=0, below=1
    )
    eps: float = setting("Adagrad's, RMSProp's, Adam's and AdamW's epsilon", 1e-8, above=0, high=1)
    clip_norm: float = setting(
        "largest norm of the whole gradient; 0 for none", 1.0, low=0, high=MOST_RATE
    )
    clip_norm_type: Literal["1", "2", "inf"] = setting("which norm that is", "2")
    clip_value: float = setting(
        "largest size of an element, after clip_norm; 0 for none", 0.0, low=0, high=MOST_RATE
    )
    label_smoothing: float = setting(
        "share of each target spread over all tokens, in the gradient alone: every loss that is "
        "reported, and all of validation, is plain nats",
        0.0,
        low=0,
        below=1,
    )
    ema: float | None = setting(
        "decay of a moving average of the weights, which is validated and saved as the model",
        None,
        low=0,
        below=1,
    )
    layer_decay: float = setting(
        "each layer's rate as a share of the one above it", 1.0, above=0, high=1
    )
    unfreeze: float = setting(
        "share of the budget in which layers thaw, from the head down", 0.0, low=0, high=1
    )
    init_from: str | None = setting("begin with the weights of this model", None)
    steps: int | None = setting("budget: optimiser steps", None, low=1, high=MOST_STEPS)
    epochs: float | None = setting(
        "budget: passes over the training part", None, above=0, high=MOST_STEPS
    )
    minutes: float | None = setting("budget: wall time", None, above=0, high=MOST_STEPS)
    validate_every: int | None = setting("steps between validations", None, low=1, high=MOST_STEPS)
    patience: int | None = setting(
        "stop after so many validations without a better one", None, low=1, high=MOST_STEPS
    )
    checkpoint_every: int | None = setting(
        "steps between checkpoints", None, low=1, high=MOST_STEPS
    )
    keep: int = setting(
        "how many checkpoints to keep, the last one included", 1, low=1, high=MOST_STEPS
    )
    precision: Literal["auto", "float32", "float64", "bf16"] = setting("arithmetic", "auto")
    compile: bool | None = setting(
        "compile a step, which takes up to a minute; tried out in long runs unless given", None
    )
    seed: int = setting("initial weights, windows, dropout", 0, low=0, high=MOST_SEED)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._settle("warmup", WARMUPS.get(self.schedule, 0.02))
        self._settle("min_lr", LEAST_RATES.get(self.schedule, 0.0))
        fits = self.k2 is None or self.k2 >= self.seq_len
        require(fits, f"k2 is at least seq_len, {self.seq_len}, not {self.k2}")
        ahead = self.momentum > 0 and self.dampening == 0
        require(not self.nesterov or ahead, "nesterov needs a momentum, and no dampening")
        budgets = [b for b in BUDGETS if getattr(self, b) is not None]
        require(len(budgets) <= 1, "give one budget: --steps, --epochs or --minutes")

    def _settle(self, name: str, value: float) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    @property
    def budget(self) -> str:
        """The name of the budget that ends training: steps, epochs or minutes."""
        given = [name for name in BUDGETS if getattr(self, name) is not None]
        require(bool(given), "there is no budget: give --steps, --epochs or --minutes")
        return given[0]


def with_default_budget(config: TrainingConfig) -> TrainingConfig:
    """Return `config` with five minutes where it names no budget."""
    if config.steps is config.epochs is config.minutes is None:
        return dataclasses.replace(config, minutes=DEFAULT_MINUTES)
    return config
