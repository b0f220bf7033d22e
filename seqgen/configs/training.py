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
        "Length of a training window in tokens; also the context window of a transformer.",
        64,
        low=1,
        high=MOST_TOKENS,
    )
    k2: int | None = setting(
        "Tokens that the gradient of a carried state goes back (truncated "
        "backpropagation); by default seq_len.",
        None,
        low=1,
        high=MOST_TOKENS,
    )
    batch_size: int = setting("Windows, or documents, in each step.", 32, low=1, high=MOST_TOKENS)
    batch_tokens: int | None = setting(
        "Of pairs: tokens in each step on the longer side, padding included, instead of "
        "batch_size pairs.",
        None,
        low=1,
        high=MOST_TOKENS,
    )
    accumulate: int = setting(
        "Work through the rows of a step in this many parts, which saves memory.",
        1,
        low=1,
        high=MOST_TOKENS,
    )
    reset_state: bool = setting(
        "Start every window from a zero state, instead of the state of the window before it.", False
    )
    optimizer: Literal["sgd", "adagrad", "rmsprop", "adam", "adamw", "muon"] = setting(
        "Update rule of the weights. Muon is for hidden matrices, with AdamW for the rest.", "adamw"
    )
    lr: float = setting("Peak learning rate.", 1e-3, above=0, high=MOST_RATE)
    muon_lr: float | None = setting(
        "Peak learning rate of Muon; by default 5 times lr.", None, above=0, high=MOST_RATE
    )
    momentum: float = setting("Momentum of sgd and rmsprop.", 0.0, low=0, below=1)
    nesterov: bool = setting("Use Nesterov momentum in sgd.", False)
    dampening: float = setting("Dampening of the momentum of sgd.", 0.0, low=0, high=1)
    schedule: Literal[
        "constant",
        "inverse_time",
        "inverse_sqrt",
        "step",
        "cosine",
        "linear",
        "slanted_triangular",
        "wsd",
    ] = setting("How the learning rate changes after warm-up.", "linear")
    warmup: float | None = setting(
        "Share of the budget in which the learning rate rises; by default 0.02, with "
        "inverse_time 0, with slanted_triangular 0.1.",
        None,
        low=0,
        below=1,
    )
    min_lr: float | None = setting(
        "Learning rate at the end of the decay, as a share of lr; by default 0, with "
        "slanted_triangular 1/32.",
        None,
        low=0,
        below=1,
    )
    step_share: float = setting(
        "With schedule=step: share of the time after warm-up between two drops.",
        0.25,
        above=0,
        high=1,
    )
    step_factor: float = setting(
        "With schedule=step: factor of the learning rate at each drop.", 0.5, above=0, high=1
    )
    decay_share: float = setting(
        "With schedule=wsd: share of the time after warm-up in which the learning rate decays.",
        0.2,
        above=0,
        high=1,
    )
    weight_decay: float = setting(
        "Weight decay of matrices, never of biases and gains; decoupled in adamw and muon.",
        0.01,
        low=0,
        high=MOST_RATE,
    )
    beta1: float = setting(
        "Decay of the running mean of gradients, in adam and adamw.", 0.9, low=0, below=1
    )
    beta2: float = setting(
        "Decay of the running mean of squared gradients, in adam, adamw and rmsprop.",
        0.99,
        low=0,
        below=1,
    )
    eps: float = setting(
        "Number added to the denominator for stability, in adagrad, rmsprop, adam and adamw.",
        1e-8,
        above=0,
        high=1,
    )
    clip_norm: float = setting(
        "Clip gradients to this global norm; 0 turns clipping off.", 1.0, low=0, high=MOST_RATE
    )
    clip_norm_type: Literal["1", "2", "inf"] = setting("Norm that clip_norm measures.", "2")
    clip_value: float = setting(
        "Clip each element of the gradient to this size, after clip_norm; 0 turns it off.",
        0.0,
        low=0,
        high=MOST_RATE,
    )
    label_smoothing: float = setting(
        "Share of each target that is spread over all tokens. It acts on the gradient"
        " alone; reported losses are without it.",
        0.0,
        low=0,
        below=1,
    )
    ema: float | None = setting(
        "Decay of a moving average of the weights, which is validated and saved in "
        "place of the weights.",
        None,
        low=0,
        below=1,
    )
    layer_decay: float = setting(
        "Learning rate of each layer as a share of that of the layer above it.",
        1.0,
        above=0,
        high=1,
    )
    unfreeze: float = setting(
        "Share of the budget over which layers are unfrozen, from the head down.",
        0.0,
        low=0,
        high=1,
    )
    init_from: str | None = setting(
        "Fine-tune: start from the weights and the tokenizer of this trained model.", None
    )
    steps: int | None = setting("Budget in optimiser steps.", None, low=1, high=MOST_STEPS)
    epochs: float | None = setting(
        "Budget in passes over the training text.", None, above=0, high=MOST_STEPS
    )
    minutes: float | None = setting(
        "Budget in minutes of training.", None, above=0, high=MOST_STEPS
    )
    validate_every: int | None = setting(
        "Steps between validations; by default they follow from the budget.",
        None,
        low=1,
        high=MOST_STEPS,
    )
    patience: int | None = setting(
        "Stop after this many validations in a row without improvement.",
        None,
        low=1,
        high=MOST_STEPS,
    )
    checkpoint_every: int | None = setting(
        "Also save a checkpoint every N steps; one is saved every two minutes in any case.",
        None,
        low=1,
        high=MOST_STEPS,
    )
    keep: int = setting(
        "Number of checkpoints to keep, the last one included.", 1, low=1, high=MOST_STEPS
    )
    precision: Literal["auto", "float32", "float64", "bf16"] = setting(
        "Arithmetic; auto takes bf16 where it is faster.", "auto"
    )
    compile: bool | None = setting(
        "Compile the training step, which takes up to a minute; by default it is "
        "tried in long runs.",
        None,
    )
    seed: int = setting("Seed of initial weights, windows and dropout.", 0, low=0, high=MOST_SEED)

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
