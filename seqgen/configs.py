"""Frozen, documented, validated settings: the base of every configuration, and training's own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import sys
import typing
from collections.abc import Iterable, Mapping
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
            if value in get_args(option):
                return value
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


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """What every architecture's configuration has."""

    derived: ClassVar[frozenset[str]] = frozenset({"vocab_size"})
    recipe: ClassVar[Mapping[str, Any]] = {}
    """Training settings that suit this architecture, where the user gives none."""

    vocab_size: int = setting("number of tokens V, from the tokenizer")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.vocab_size >= 1, f"vocab_size is at least 1, not {self.vocab_size}")


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """How text becomes tokens, and which part of it is held out."""

    tokenizer: str = setting(
        "char, byte, word, whitespace, bpe or unigram; or a tokenizer's file or folder", "char"
    )
    vocab_size: int | None = setting("keep only the most frequent N tokens", None)
    min_count: int = setting("keep only what occurs so often in the text", 1)
    subword_sampling: float | None = setting(
        "cut training text anew every epoch, by chance: alpha of unigram, dropout of bpe", None
    )
    documents: Documents = setting("one stream of text, or one document a line", "stream")
    val: str = setting("held-out part: a file, a share such as 0.05, or none", "0.1")
    split_seed: int = setting("draws the held-out lines of --documents line", 0)
    newlines: Literal["keep", "lf"] = setting("keep CRLF as it is, or make it LF", "keep")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.split_seed >= 0, f"split_seed is at least 0, not {self.split_seed}")
        if self.vocab_size is not None:
            require(self.vocab_size >= 1, f"vocab_size is at least 1, not {self.vocab_size}")
        require(self.min_count >= 1, f"min_count is at least 1, not {self.min_count}")
        alpha = self.subword_sampling
        require(alpha is None or 0 < alpha <= 1, f"subword_sampling is above 0 to 1, not {alpha}")


BUDGETS = ("steps", "epochs", "minutes")
RESUMABLE = frozenset({*BUDGETS, "checkpoint_every"})
DEFAULT_MINUTES = 5.0


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """How a model with parameters is trained by gradient descent."""

    seq_len: int = setting("tokens in a training window; a transformer's window W", 64)
    batch_size: int = setting("windows (or documents) in a step", 32)
    reset_state: bool = setting("start every window from a zero state", False)
    optimizer: Literal["adamw", "muon"] = setting(
        "the update rule; muon for hidden matrices, with adamw for the rest", "adamw"
    )
    lr: float = setting("peak learning rate", 1e-3)
    muon_lr: float | None = setting("Muon's peak rate; 5 lr unless given", None)
    schedule: Literal["constant", "linear", "cosine"] = setting("decay after warm-up", "linear")
    warmup: float = setting("share of the budget in which the rate rises from 0", 0.02)
    min_lr: float = setting("the decay's end, as a share of lr", 0.0)
    weight_decay: float = setting("decoupled decay of matrices (never of biases, gains)", 0.01)
    beta1: float = setting("AdamW's decay of the mean", 0.9)
    beta2: float = setting("AdamW's decay of the square", 0.99)
    eps: float = setting("AdamW's epsilon", 1e-8)
    clip_norm: float = setting("largest 2-norm of the whole gradient; 0 for none", 1.0)
    steps: int | None = setting("budget: optimiser steps", None)
    epochs: float | None = setting("budget: passes over the training part", None)
    minutes: float | None = setting("budget: wall time", None)
    validate_every: int | None = setting("steps between validations", None)
    checkpoint_every: int | None = setting("steps between checkpoints", None)
    precision: Literal["auto", "float32", "float64", "bf16"] = setting("arithmetic", "auto")
    seed: int = setting("initial weights, windows, dropout", 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("seq_len", "batch_size", "validate_every", "checkpoint_every", "steps"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} is at least 1, not {value}")
        for name in ("lr", "muon_lr", "eps", "epochs", "minutes"):
            value = getattr(self, name)
            require(value is None or value > 0, f"{name} is more than 0, not {value}")
        for name in ("warmup", "min_lr", "beta1", "beta2"):
            value = getattr(self, name)
            require(0 <= value < 1, f"{name} is at least 0 and less than 1, not {value}")
        for name in ("weight_decay", "clip_norm", "seed"):
            value = getattr(self, name)
            require(value >= 0, f"{name} is at least 0, not {value}")
        require(self.seed < 1 << 63, f"seed is less than 2**63, not {self.seed}")
        budgets = [b for b in BUDGETS if getattr(self, b) is not None]
        require(len(budgets) <= 1, "give one budget: --steps, --epochs or --minutes")

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
            raise UsageError(f"{architecture} has no setting {name!r}{did_you_mean(name, known)}")
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


def settings_of(nested: Mapping[str, Any], config_class: type[ModelConfig]) -> dict[str, Any]:
    """Return a configuration file's settings by name.

    Tables (`model`, `training`, `data`) only group. What is derived, and what tells about the
    file itself, is left out.
    """
    about = {"format", "seqgen_version", "architecture"}
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
