"""Frozen, documented, validated settings: the base of every configuration, and training's own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, get_args, get_origin

from seqgen.errors import SeqgenError, UsageError, did_you_mean

Documents = Literal["stream", "line"]


def setting(doc: str, default: Any = MISSING) -> Any:
    """Return a dataclass field with its documentation; required when it has no default."""
    return dataclasses.field(default=default, metadata={"doc": doc})


def require(condition: bool, message: str) -> None:
    """Raise a UsageError with `message` unless `condition` holds."""
    if not condition:
        raise UsageError(message)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings by name. Every field is a plain value, so that JSON and TOML hold all of it."""

    # Fields that follow from the data and from other settings: no user sets them.
    derived: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def fields(cls) -> dict[str, dataclasses.Field]:
        """Return the fields a user may set, by name, in order."""
        return {f.name: f for f in dataclasses.fields(cls) if f.name not in cls.derived}

    @classmethod
    def types(cls) -> dict[str, Any]:
        """Return each field's type, resolved."""
        return typing.get_type_hints(cls)

    def __post_init__(self) -> None:
        """Check each value's type, and each choice.

        Raises:
            UsageError: naming the setting, the value and what is allowed.
        """
        for name, kind in self.types().items():
            if get_origin(kind) is not ClassVar:
                object.__setattr__(self, name, conform(name, getattr(self, name), kind))

    def to_dict(self) -> dict[str, Any]:
        """Return every field by name, as JSON can hold it."""
        return dataclasses.asdict(self)


def conform(name: str, value: Any, kind: Any) -> Any:
    """Return `value` as the field type `kind`, reading text such as "0.1" or "true".

    Raises:
        UsageError: the value is not of that type, or not among the choices.
    """
    options = get_args(kind) if get_origin(kind) in (typing.Union, UnionType) else (kind,)
    if type(None) in options and (value is None or value == "none"):
        return None
    for option in options:
        if get_origin(option) is Literal:
            if str(value) in get_args(option):
                return str(value)  # TOML's clip_norm_type = 2 is a number
        elif option is bool:
            if str(value).lower() in ("true", "false"):
                return str(value).lower() == "true"
        elif option in (int, float):
            number = _number(value, option)
            if number is not None:
                return number
        elif option is str and type(value) in (str, int, float):
            return str(value)  # TOML's val = 0.05 is a number
    expected = " or ".join(_describe(option) for option in options)
    raise UsageError(f"{name} is {expected}, not {value!r}")


def _number(value: Any, kind: type) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if kind is int and isinstance(value, int | str):
        with contextlib.suppress(ValueError):
            return int(value)  # exact, which a large seed is not as a float
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    if kind is int:
        return int(number) if number == int(number) else None
    return number


def _describe(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(kind, "none")


@dataclass(frozen=True)
class Size:
    """How large a model is, and what that takes to be worth it.

    Attributes:
        settings: of the model.
        tokens: how many tokens of training it needs to do better than the next smaller one.
        text: how many tokens of text it needs to do so.
    """

    settings: Mapping[str, Any]
    tokens: float = 0.0
    text: float = 0.0


# Up to so many passes over the text, times parameters for each of its tokens, so much dropout.
DROPOUT_BY_STRAIN = (
    (8, 0.0),
    (25, 0.1),
    (70, 0.2),
    (200, 0.3),
    (500, 0.4),
    (1500, 0.5),
    (math.inf, 0.6),
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """What every architecture's configuration has."""

    derived: ClassVar[frozenset[str]] = frozenset({"vocab_size"})
    recipe: ClassVar[Mapping[str, Any]] = {}
    """Training settings that suit this architecture, where the user gives none."""
    sizes: ClassVar[tuple[Size, ...]] = (Size({}),)
    """What suits more or less time and text, the largest first; the last suits any."""

    vocab_size: int = setting("Number of tokens in the vocabulary; it follows from the tokenizer.")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.vocab_size >= 1, f"vocab_size is at least 1, not {self.vocab_size}")

    @classmethod
    def regularised(cls, strain: float) -> dict[str, Any]:
        """Return the settings that keep a text from being learned by heart.

        Args:
            strain: passes over the text, times parameters for each of its tokens.
        """
        if "dropout" not in cls.fields():
            return {}
        return {"dropout": next(p for most, p in DROPOUT_BY_STRAIN if strain < most)}

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        """Return whether products in bf16 units pay on a CPU: for small ones casting costs more."""
        return True


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """How text becomes tokens, and which part of it is held out."""

    tokenizer: str = setting(
        "What a token is: char, byte, word, whitespace, bpe or unigram; or the file "
        "or folder of a tokenizer.",
        "char",
    )
    vocab_size: int | None = setting(
        "Keep only the N most frequent tokens. Of bpe and unigram: train a vocabulary of N tokens.",
        None,
    )
    min_count: int = setting(
        "Keep only tokens that occur at least this often in the training text.", 1
    )
    subword_sampling: float | None = setting(
        "Segment the training text anew at random in every epoch: alpha of unigram, "
        "dropout of bpe.",
        None,
    )
    documents: Documents = setting(
        "Treat the text as one continuous stream, or each line as a separate document.", "stream"
    )
    val: str = setting(
        "Held-out part for validation: a share of the text such as 0.05, a file, or none.", "0.1"
    )
    split_seed: int = setting("Seed of the draw of held-out lines, with documents=line.", 0)
    newlines: Literal["keep", "lf"] = setting(
        "Keep CRLF line ends as they are, or turn them into LF.", "keep"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.split_seed >= 0, f"split_seed is at least 0, not {self.split_seed}")
        if self.vocab_size is not None:
            require(self.vocab_size >= 1, f"vocab_size is at least 1, not {self.vocab_size}")
        require(self.min_count >= 1, f"min_count is at least 1, not {self.min_count}")
        alpha = self.subword_sampling
        require(alpha is None or 0 < alpha <= 1, f"subword_sampling is above 0 to 1, not {alpha}")


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
        "Length of a training window in tokens; also the context window of a transformer.", 64
    )
    k2: int | None = setting(
        "Tokens that the gradient of a carried state goes back (truncated "
        "backpropagation); by default seq_len.",
        None,
    )
    batch_size: int = setting("Windows, or documents, in each step.", 32)
    accumulate: int = setting(
        "Work through the rows of a step in this many parts, which saves memory.", 1
    )
    reset_state: bool = setting(
        "Start every window from a zero state, instead of the state of the window before it.", False
    )
    optimizer: Literal["sgd", "adagrad", "rmsprop", "adam", "adamw", "muon"] = setting(
        "Update rule of the weights. Muon is for hidden matrices, with AdamW for the rest.", "adamw"
    )
    lr: float = setting("Peak learning rate.", 1e-3)
    muon_lr: float | None = setting("Peak learning rate of Muon; by default 5 times lr.", None)
    momentum: float = setting("Momentum of sgd and rmsprop.", 0.0)
    nesterov: bool = setting("Use Nesterov momentum in sgd.", False)
    dampening: float = setting("Dampening of the momentum of sgd.", 0.0)
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
    )
    min_lr: float | None = setting(
        "Learning rate at the end of the decay, as a share of lr; by default 0, with "
        "slanted_triangular 1/32.",
        None,
    )
    step_share: float = setting(
        "With schedule=step: share of the time after warm-up between two drops.", 0.25
    )
    step_factor: float = setting(
        "With schedule=step: factor of the learning rate at each drop.", 0.5
    )
    decay_share: float = setting(
        "With schedule=wsd: share of the time after warm-up in which the learning rate decays.", 0.2
    )
    weight_decay: float = setting(
        "Weight decay of matrices, never of biases and gains; decoupled in adamw and muon.", 0.01
    )
    beta1: float = setting("Decay of the running mean of gradients, in adam and adamw.", 0.9)
    beta2: float = setting(
        "Decay of the running mean of squared gradients, in adam, adamw and rmsprop.", 0.99
    )
    eps: float = setting(
        "Number added to the denominator for stability, in adagrad, rmsprop, adam and adamw.", 1e-8
    )
    clip_norm: float = setting("Clip gradients to this global norm; 0 turns clipping off.", 1.0)
    clip_norm_type: Literal["1", "2", "inf"] = setting("Norm that clip_norm measures.", "2")
    clip_value: float = setting(
        "Clip each element of the gradient to this size, after clip_norm; 0 turns it off.", 0.0
    )
    label_smoothing: float = setting(
        "Share of each target that is spread over all tokens. It acts on the gradient"
        " alone; reported losses are without it.",
        0.0,
    )
    ema: float | None = setting(
        "Decay of a moving average of the weights, which is validated and saved in "
        "place of the weights.",
        None,
    )
    layer_decay: float = setting(
        "Learning rate of each layer as a share of that of the layer above it.", 1.0
    )
    unfreeze: float = setting(
        "Share of the budget over which layers are unfrozen, from the head down.", 0.0
    )
    init_from: str | None = setting(
        "Fine-tune: start from the weights and the tokenizer of this trained model.", None
    )
    steps: int | None = setting("Budget in optimiser steps.", None)
    epochs: float | None = setting("Budget in passes over the training text.", None)
    minutes: float | None = setting("Budget in minutes of training.", None)
    validate_every: int | None = setting(
        "Steps between validations; by default they follow from the budget.", None
    )
    patience: int | None = setting(
        "Stop after this many validations in a row without improvement.", None
    )
    checkpoint_every: int | None = setting(
        "Also save a checkpoint every N steps; one is saved every two minutes in any case.", None
    )
    keep: int = setting("Number of checkpoints to keep, the last one included.", 1)
    precision: Literal["auto", "float32", "float64", "bf16"] = setting(
        "Arithmetic; auto takes bf16 where it is faster.", "auto"
    )
    compile: bool | None = setting(
        "Compile the training step, which takes up to a minute; by default it is "
        "tried in long runs.",
        None,
    )
    seed: int = setting("Seed of initial weights, windows and dropout.", 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._settle("warmup", WARMUPS.get(self.schedule, 0.02))
        self._settle("min_lr", LEAST_RATES.get(self.schedule, 0.0))
        for name in ("seq_len", "batch_size", "accumulate", "validate_every", "patience"):
            self._check(name, lambda value: value >= 1, "at least 1")
        for name in ("checkpoint_every", "keep", "steps"):
            self._check(name, lambda value: value >= 1, "at least 1")
        for name in ("lr", "muon_lr", "eps", "epochs", "minutes"):
            self._check(name, lambda value: value > 0, "more than 0")
        for name in ("warmup", "min_lr", "beta1", "beta2", "momentum", "ema", "label_smoothing"):
            self._check(name, lambda value: 0 <= value < 1, "at least 0 and less than 1")
        for name in ("step_share", "step_factor", "decay_share", "layer_decay"):
            self._check(name, lambda value: 0 < value <= 1, "more than 0 and at most 1")
        for name in ("dampening", "unfreeze"):
            self._check(name, lambda value: 0 <= value <= 1, "at least 0 and at most 1")
        for name in ("weight_decay", "clip_norm", "clip_value", "seed"):
            self._check(name, lambda value: value >= 0, "at least 0")
        self._check("k2", lambda k2: k2 >= self.seq_len, f"at least seq_len, {self.seq_len}")
        require(self.seed < 1 << 63, f"seed is less than 2**63, not {self.seed}")
        ahead = self.momentum > 0 and self.dampening == 0
        require(not self.nesterov or ahead, "nesterov needs a momentum, and no dampening")
        budgets = [b for b in BUDGETS if getattr(self, b) is not None]
        require(len(budgets) <= 1, "give one budget: --steps, --epochs or --minutes")

    def _settle(self, name: str, value: float) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    def _check(self, name: str, holds: Callable[[Any], bool], wanted: str) -> None:
        value = getattr(self, name)
        require(value is None or holds(value), f"{name} is {wanted}, not {value}")

    @property
    def budget(self) -> str:
        """The name of the budget that ends training: steps, epochs or minutes."""
        return next(b for b in BUDGETS if getattr(self, b) is not None)


def with_default_budget(config: TrainingConfig) -> TrainingConfig:
    """Return `config` with five minutes where it names no budget."""
    if config.steps is config.epochs is config.minutes is None:
        return dataclasses.replace(config, minutes=DEFAULT_MINUTES)
    return config


def resolve(
    settings: Mapping[str, Any], architecture: str, groups: Iterable[type[Config]]
) -> list[dict[str, Any]]:
    """Deal `settings` out to the configuration classes that have a field of that name.

    Returns:
        For each class, in order, its share of the settings. A field of the same name in two
        classes goes to the first of them.

    Raises:
        UsageError: a setting that none of them has.
    """
    groups = list(groups)
    shares: list[dict[str, Any]] = [{} for _ in groups]
    known = [name for group in groups for name in group.fields()]
    for name, value in settings.items():
        owner = next((i for i, group in enumerate(groups) if name in group.fields()), None)
        if owner is None:
            hint = did_you_mean(name, known)
            listed = f"seqgen models --architectures {architecture} lists all of them"
            raise UsageError(f"{architecture} has no setting {name!r}{hint} ({listed})")
        shares[owner][name] = value
    return shares


def read_config(path: Path) -> dict[str, Any]:
    """Read a TOML file, or a model's `config.json`, as nested tables.

    Raises:
        SeqgenError: the file is missing or is not TOML or JSON.
    """
    try:
        raw = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SeqgenError(f"{path} cannot be read as a configuration: {error}") from None
    try:
        settings = json.loads(raw) if path.suffix == ".json" else _toml(raw)
    except ValueError as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise SeqgenError(f"{path} is not {kind}: {error}") from None
    if not isinstance(settings, dict):
        raise SeqgenError(f"{path} holds no settings by name")
    return settings


def _toml(raw: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(raw)


def settings_of(
    nested: Mapping[str, Any], config_class: type[ModelConfig] = ModelConfig
) -> dict[str, Any]:
    """Return a configuration file's settings by name.

    Tables (`model`, `training`, `data`) only group. What is derived, and what tells about the
    file itself, is left out.
    """
    about = {"format", "seqgen_version", "architecture", "preset"}
    settings: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            derived = config_class.derived if name == "model" else ()
            settings.update({k: v for k, v in value.items() if k not in derived})
        elif name not in about:
            settings[name] = value
    return settings


DOCUMENTS: tuple[str, ...] = get_args(Documents)
PRECISIONS = ("auto", "float32", "float64", "bf16")


def choice(flag: str, value: str, allowed: Iterable[str]) -> str:
    """Return `value` if it is allowed.

    Raises:
        UsageError: it is not; names the flag and what is.
    """
    allowed = list(allowed)
    hint = did_you_mean(value, allowed) or f"; it is one of {', '.join(allowed)}"
    require(value in allowed, f"{flag} is not {value!r}{hint}")
    return value


def texts(flag: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """Return the texts of an option that takes several; a bare `str` is one.

    Raises:
        UsageError: one of them is empty or no text; names the flag.
    """
    several = (given,) if isinstance(given, str) else tuple(given)
    for text in several:
        why = no_text(text)
        require(why is None, f"{flag} {why}")
        require(text != "", f"{flag} needs a text that is not empty")
    return several


def no_text(value: object) -> str | None:
    """Return why `value` is no text that UTF-8 can hold, as the end of a sentence, or None."""
    if not isinstance(value, str):
        return f"is no text but {value!r}"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code, at = ord(value[error.start]), len(value[: error.start].encode())
        # Python makes U+DC80 to U+DCFF of an argument's bytes that are not UTF-8.
        escaped = 0xDC80 <= code <= 0xDCFF
        bad = f"byte 0x{code - 0xDC00:02x}" if escaped else f"U+{code:04X}"
        return f"is not UTF-8 text: {bad} at offset {at}"
    return None
