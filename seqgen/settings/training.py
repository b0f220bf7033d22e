"""Settings of training by gradient descent."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from seqgen.settings import ranges
from seqgen.settings.options import CHOSEN, Panel, Precision, parse_size
from seqgen.settings.regimes import RegimeConfig
from seqgen.settings.setting import MOST_STEPS, Choices, OptionRule, Span, require, setting

Optimizer = Literal["sgd", "adagrad", "rmsprop", "adam", "adamw", "muon"]
Windows = Literal["random", "sequential"]
BUDGETS = ("steps", "epochs", "minutes")
# The reasons to stop after which a run is complete, unlike an interruption.
FINISHED = (*BUDGETS, "patience")
RESUMABLE = frozenset({*BUDGETS, "checkpoint_every", "keep", "with_ngram"})
DEFAULT_MINUTES = 5.0
MOST_ROW_THREADS = 64
MOST_MEMBERS = 64

# With these optimizers, these settings replace an architecture's recipe, which is tuned for adamw
# and muon: they add the weight decay to the gradient, and sgd takes steps of a different size.
RULE_RECIPES: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"lr": 0.5, "momentum": 0.9, "weight_decay": 0.0},
    "adagrad": {"lr": 0.02, "weight_decay": 0.0},
    "rmsprop": {"lr": 2e-3, "weight_decay": 0.0},
    "adam": {"weight_decay": 0.0},
}
# The rate of adam, adamw and muon where the recipe's is for another kind of rule.
ADAPTIVE_LR = 0.01

# With low-rank adapters, these replace an architecture's recipe: A and B are factors of an update.
ADAPTER_RECIPE: Mapping[str, Any] = {"optimizer": "adamw", "lr": 2e-3, "weight_decay": 0.0}
NEEDS_ADAPTERS = OptionRule(("lora",), "{flag} needs lora, the adapters' rank")


def adapt_recipe(given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Adapt an architecture's training recipe to the given optimizer and adapters.

    Args:
        given: settings by name, not necessarily of training alone.
        recipe: the architecture's.
    """
    adapts = {} if given.get("lora") is None else ADAPTER_RECIPE
    recipe = {**recipe, **adapts}
    default_rule, rule = recipe.get("optimizer"), given.get("optimizer")
    if rule is None or (rule == default_rule and "lr" in RULE_RECIPES.get(default_rule, {})):
        return recipe
    if "lr" in RULE_RECIPES.get(default_rule, {}):
        recipe["lr"] = ADAPTIVE_LR
    return {**recipe, **RULE_RECIPES.get(rule, {})}


# Defaults by schedule: the share of the budget spent on warm-up, and the rate at the end. Howard
# and Ruder (2018) use 0.1 and 1/32 for the slanted triangle; the rates of Robbins and Monro fall
# from the first step on.
WARMUPS = {"inverse_time": 0.0, "slanted_triangular": 0.1}
LEAST_RATES = {"slanted_triangular": 1 / 32}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(RegimeConfig):
    """Settings of training a model by gradient descent.

    `warmup` and `min_lr` get the schedule's values at construction if they are None.
    """

    seq_len: int = setting(
        "Length of a training window in tokens; also the context window of a transformer.",
        64,
        ranges.TOKENS,
        panel=Panel.OPTIMISATION,
        without=CHOSEN,
    )
    k2: int | None = setting(
        "With a carried state: how many tokens back gradients flow (truncated "
        "backpropagation); by default seq_len.",
        bounds=ranges.TOKENS,
    )
    batch_size: int = setting(
        "Number of windows, documents or pairs in each step.",
        32,
        ranges.TOKENS,
        search=Choices((1 / 4, 1 / 2, 1, 2, 4), relative=True),
        panel=Panel.OPTIMISATION,
        without=CHOSEN,
        common=True,
    )
    batch_tokens: int | None = setting(
        "For pairs: fill each step up to this many tokens, counted on the longer side with its "
        "padding, instead of batch_size pairs.",
        bounds=ranges.TOKENS,
    )
    accumulate: int = setting(
        "Process the rows of a step in this many parts, to save memory.", 1, ranges.TOKENS
    )
    reset_state: bool = setting(
        "Start every window from a zero state, instead of the state of the window before it.",
        panel=Panel.MORE,
    )
    windows: Windows = setting(
        "Windows of a stream from which no state is carried on: at random places, or one after "
        "the other (sequential).",
        "random",
    )
    optimizer: Optimizer = setting(
        "Optimizer. muon applies Muon to the hidden matrices and AdamW to the rest.",
        "adamw",
        panel=Panel.OPTIMISATION,
        metavar="KIND",
        without=CHOSEN,
    )
    lr: float = setting(
        "Peak learning rate.",
        1e-3,
        ranges.RATES,
        search=Span(1 / 8, 8, log=True, relative=True),
        panel=Panel.OPTIMISATION,
        without=CHOSEN,
        common=True,
    )
    muon_lr: float | None = setting(
        "Peak learning rate of Muon; by default 5 times lr.", bounds=ranges.RATES
    )
    muon_momentum: float = setting("Momentum of Muon.", 0.95, ranges.SHARES_BELOW_1)
    momentum: float = setting("Momentum of sgd and rmsprop.", 0.0, ranges.SHARES_BELOW_1)
    nesterov: bool = setting("Use Nesterov momentum in sgd.")
    dampening: float = setting("Dampening of the momentum of sgd.", 0.0, ranges.SHARES)
    schedule: Literal[
        "constant",
        "inverse_time",
        "inverse_sqrt",
        "step",
        "cosine",
        "linear",
        "slanted_triangular",
        "wsd",
    ] = setting(
        "How the learning rate changes after warm-up.",
        "linear",
        panel=Panel.OPTIMISATION,
        metavar="KIND",
    )
    warmup: float | None = setting(
        "Share of the budget in which the learning rate rises; by default 0.02, but 0 for "
        "inverse_time and 0.1 for slanted_triangular.",
        bounds=ranges.SHARES_BELOW_1,
    )
    min_lr: float | None = setting(
        "Learning rate at the end of the decay, as a share of lr; by default 0, but 1/32 for "
        "slanted_triangular.",
        bounds=ranges.SHARES_BELOW_1,
    )
    step_share: float = setting(
        "With schedule=step: share of the time after warm-up between two drops.",
        0.25,
        ranges.POSITIVE_SHARES,
    )
    step_factor: float = setting(
        "With schedule=step: multiply the learning rate by this at each drop.",
        0.5,
        ranges.POSITIVE_SHARES,
    )
    decay_share: float = setting(
        "With schedule=wsd: share of the time after warm-up in which the learning rate decays.",
        0.2,
        ranges.POSITIVE_SHARES,
    )
    weight_decay: float = setting(
        "Weight decay, of matrices only; decoupled in adamw and muon.",
        0.01,
        ranges.WEIGHTS,
        search=Span(1e-3, 0.3, log=True),
    )
    final_weight_decay: float = setting(
        "Weight decay when the learning rate has fallen to 0, as a share of weight_decay; it "
        "falls with the learning rate.",
        1.0,
        ranges.SHARES,
    )
    beta1: float = setting(
        "Decay rate of the running mean of gradients, in adam and adamw.",
        0.9,
        ranges.SHARES_BELOW_1,
    )
    beta2: float = setting(
        "Decay rate of the running mean of squared gradients, in adam, adamw and rmsprop.",
        0.99,
        ranges.SHARES_BELOW_1,
    )
    eps: float = setting(
        "Number added to the denominator for stability, in adagrad, rmsprop, adam and adamw.",
        1e-8,
        ranges.POSITIVE_SHARES,
    )
    eps_inside: bool = setting(
        "In adagrad, rmsprop, adam and adamw, divide by sqrt(v + eps) instead of sqrt(v) + eps."
    )
    adagrad_window: int | None = setting(
        "In adagrad, add up the squares of this many gradients only, the last ones; by default of "
        "all.",
        bounds=ranges.STEPS,
    )
    clip_norm: float = setting(
        "Clip gradients to this global norm; 0 turns clipping off.",
        1.0,
        ranges.WEIGHTS,
        panel=Panel.OPTIMISATION,
    )
    clip_norm_type: Literal["1", "2", "inf"] = setting(
        "Which norm clip_norm measures: 1, 2 or the largest element (inf).", "2"
    )
    clip_norm_scope: Literal["all", "each"] = setting(
        "Clip the gradient as a whole (all), or each matrix and vector separately (each).", "all"
    )
    clip_value: float = setting(
        "Clip each element of the gradient to this size, after clip_norm; 0 turns it off.",
        0.0,
        ranges.WEIGHTS,
    )
    label_smoothing: float = setting(
        "Share of each target's probability that is spread over all tokens. It affects only"
        " the gradient; reported losses are without it.",
        0.0,
        ranges.SHARES_BELOW_1,
    )
    ema: float | None = setting(
        "Decay rate of a moving average of the weights; the average is validated and saved "
        "instead of the weights.",
        bounds=ranges.SHARES_BELOW_1,
    )
    layer_decay: float = setting(
        "Learning rate of each layer, as a share of the rate of the layer above it.",
        1.0,
        ranges.POSITIVE_SHARES,
    )
    head_factor: float = setting(
        "Learning rate of the output layer, as a multiple of lr.", 1.0, ranges.RATES
    )
    unfreeze: float = setting(
        "Share of the budget during which layers are unfrozen one by one, from the head down.",
        0.0,
        ranges.SHARES,
    )
    init_from: str | None = setting(
        "Fine-tune: start from the weights and the tokenizer of this trained model.",
        panel=Panel.SAVING,
        completes="models",
        common=True,
    )
    lora: int | None = setting(
        "With init_from: keep that model as it is, and train and store only low-rank adapters of "
        "this rank r on every matrix between embedding and softmax (Hu et al. 2021).",
        bounds=ranges.WIDTHS,
        needs=OptionRule(
            ("init_from",), "lora trains adapters of a trained model: give it as --init-from NAME"
        ),
    )
    lora_alpha: float | None = setting(
        "With lora: scale of the adapters, which are multiplied by lora_alpha / r; by default r.",
        bounds=ranges.RATES,
        needs=NEEDS_ADAPTERS,
    )
    lora_base: Literal["float32", "bf16"] | None = setting(
        "With lora: type in which the frozen matrices are kept in memory; by default that of the "
        "base's file, also blocks of 4 or 8 bits, and bf16 instead of float32 if precision is "
        "bf16.",
        needs=NEEDS_ADAPTERS,
    )
    features: str | None = setting(
        "For --task: also give the encoder the features of this trained model, which is not "
        "trained further: elmo, word vectors or a language model.",
    )
    steps: int | None = setting(
        "Budget in optimizer steps.", bounds=ranges.STEPS, panel=Panel.BUDGET, common=True
    )
    epochs: float | None = setting(
        "Budget in passes over the training text.",
        above=0,
        high=MOST_STEPS,
        panel=Panel.BUDGET,
        common=True,
    )
    minutes: float | None = setting(
        "Budget in minutes, until the model is stored.",
        above=0,
        high=MOST_STEPS,
        panel=Panel.BUDGET,
        without="5 if no budget is given",
        common=True,
    )
    validate_every: int | None = setting(
        "Steps between validations; by default chosen to suit the budget.", bounds=ranges.STEPS
    )
    patience: int | None = setting(
        "Stop after this many validations in a row without improvement.",
        bounds=ranges.STEPS,
        panel=Panel.BUDGET,
    )
    checkpoint_every: int | None = setting(
        "Also save a checkpoint every N steps; one is saved every two minutes in any case.",
        bounds=ranges.STEPS,
        panel=Panel.SAVING,
    )
    keep: int = setting(
        "Number of checkpoints to keep, the last one included.", 1, ranges.STEPS, panel=Panel.MORE
    )
    with_ngram: int | None = setting(
        "Add an n-gram model of this order if it helps (the default without --model). At 0, or "
        "without a number, held-out loss chooses the order.",
        low=0,
        high=255,
        panel=Panel.NGRAM,
        metavar="[ORDER]",
        common=True,
    )
    memory: str | None = setting(
        "Memory limit of the process for counting n-grams, such as 1G; the rest goes to "
        "temporary files.",
        panel=Panel.NGRAM,
        metavar="SIZE",
    )
    members: int | None = setting(
        "Train this many networks with different seeds, one per core, and store them as one "
        "mixture, which takes that many times as long to write.",
        low=2,
        high=MOST_MEMBERS,
        panel=Panel.WHAT,
        metavar="K",
    )
    precision: Precision = setting(
        "Number format; auto uses bf16 if it trains faster on this machine, else float32.",
        "auto",
        panel=Panel.OPTIMISATION,
        metavar="KIND",
        without=CHOSEN,
    )
    compile: bool | None = setting(
        "Compile the training step, which takes up to a minute; by default seqgen tries it "
        "in runs of 30 minutes or more."
    )
    checkpointing: bool | None = setting(
        "For the transformer: keep only the inputs of blocks for the gradient and compute the rest "
        "again, which takes less memory and about a third more time; by default where memory is "
        "short."
    )
    row_threads: int | None = setting(
        "Divide the rows of each step among this many threads, each with one core; 1 leaves every "
        "operation to PyTorch's threads. By default the faster way on this machine.",
        low=1,
        high=MOST_ROW_THREADS,
    )
    seed: int = setting(
        "Random seed of initial weights, windows and dropout; `train` draws one if none is given.",
        0,
        ranges.SEEDS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory is not None:
            parse_size("--memory", self.memory)
        self._fill_in("warmup", WARMUPS.get(self.schedule, 0.02))
        self._fill_in("min_lr", LEAST_RATES.get(self.schedule, 0.0))
        if self.lora is not None:
            self._fill_in("lora_alpha", float(self.lora))
        long_enough = self.k2 is None or self.k2 >= self.seq_len
        require(long_enough, f"k2 must be at least seq_len, {self.seq_len}, not {self.k2}")
        has_momentum = self.momentum > 0 and self.dampening == 0
        require(not self.nesterov or has_momentum, "nesterov needs momentum and no dampening")
        rooted = self.eps_inside and self.optimizer == "rmsprop"
        require(not (rooted and self.momentum), "eps_inside needs rmsprop without momentum")
        budgets = [b for b in BUDGETS if getattr(self, b) is not None]
        divided = self.members is not None and (self.compile or (self.row_threads or 1) > 1)
        require(not divided, "members are trained a thread each: no compile, and no row_threads")
        require(len(budgets) <= 1, "give one budget: --steps, --epochs or --minutes")

    def _fill_in(self, name: str, value: float) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    @property
    def most_bytes(self) -> int | None:
        """Memory limit of counting n-grams, in bytes; None for no limit."""
        return None if self.memory is None else parse_size("--memory", self.memory)

    @property
    def budget(self) -> str:
        """Name of the setting that limits training: steps, epochs or minutes."""
        given = [name for name in BUDGETS if getattr(self, name) is not None]
        require(bool(given), "there is no budget: give --steps, --epochs or --minutes")
        return given[0]


def with_default_budget(config: TrainingConfig) -> TrainingConfig:
    """Add a budget of five minutes to a configuration without one."""
    if config.steps is config.epochs is config.minutes is None:
        return dataclasses.replace(config, minutes=DEFAULT_MINUTES)
    return config
