"""Settings by name: their types, their bounds, and how a value that breaks them is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args, get_origin

from seqgen.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from typing_extensions import Self

Number = int | float
# What no size, seed or count may pass: ids, seeds and file positions are 64-bit numbers.
MOST_SEED = (1 << 63) - 1
MOST_TOKENS = (1 << 31) - 1
MOST_STEPS = 10**12
# Texts that are worked on side by side.
MOST_ROWS = 1 << 16
# Widths past these make matrices of terabytes, which no machine can begin to train.
MOST_WIDTH = 1 << 20
MOST_LAYERS = 1000
MOST_RATE = 1e6
# Training with a loss this high, in nats per token, does not recover; a uniform guess costs log V,
# about ten.
MOST_NATS = 1e6


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The allowed range of a number; None means no limit.

    Attributes:
        low: the smallest allowed value.
        above: the value must be greater than this.
        high: the largest allowed value.
        below: the value must be less than this.
    """

    low: Number | None = None
    above: Number | None = None
    high: Number | None = None
    below: Number | None = None

    def __contains__(self, value: Number) -> bool:
        return (
            (self.low is None or value >= self.low)
            and (self.above is None or value > self.above)
            and (self.high is None or value <= self.high)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        """Return the end of a sentence, such as "at least 1 and at most 10"."""
        words = {"at least": self.low, "more than": self.above}
        words |= {"at most": self.high, "less than": self.below}
        return " and ".join(f"{word} {_plain(x)}" for word, x in words.items() if x is not None)

    def check(self, name: str, value: Number | None) -> None:
        """Refuse a number that is out of bounds; None passes.

        Raises:
            UsageError: names the setting, which is `name`, and the bounds.
        """
        if value is None or value in self:
            return
        too_high = self.high is not None and not value <= self.high
        told = self if too_high else self.without_sanity_limit()
        raise UsageError(f"{name} must be {told}, not {short(value)}")

    def without_sanity_limit(self) -> Bounds:
        """Return the bounds to document, without a limit that only catches typing errors."""
        keep = self.high is None or self.high <= SANE
        return self if keep else dataclasses.replace(self, high=None)


NO_BOUNDS = Bounds()
# Upper limits above this only catch typing errors, so they are not documented.
SANE = 1000


def _plain(number: Number) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


def short(value: object) -> str:
    """Return a value as a message shows it: a very long one by its first digits and its length."""
    try:
        text = str(value)
    except ValueError:  # more digits than Python writes
        return "a number of thousands of digits"
    return text if len(text) <= 40 else f"{text[:20]}... ({len(text):,} characters)"


def setting(
    doc: str,
    default: Any = MISSING,
    *,
    low: Number | None = None,
    above: Number | None = None,
    high: Number | None = None,
    below: Number | None = None,
    search: Any = None,
) -> Any:
    """Return a dataclass field with its documentation and bounds.

    Args:
        doc: what it means, in a line.
        default: the setting is required if there is none.
        low: the least it may be.
        above: what it is more than.
        high: the most it may be.
        below: what it is less than.
        search: the range or the values that `tune` tries of it, a `search.Dimension`; None for a
            setting that it leaves alone unless it is asked.
    """
    bounds = Bounds(low=low, above=above, high=high, below=below)
    metadata = {"doc": doc, "bounds": bounds, "search": search}
    return dataclasses.field(default=default, metadata=metadata)


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
        """Check each value's type and bounds, and each choice.

        Raises:
            UsageError: naming the setting, the value and what is allowed.
        """
        kinds = self.types()
        for field in dataclasses.fields(self):
            value = conform(field.name, getattr(self, field.name), kinds[field.name])
            object.__setattr__(self, field.name, value)
            field.metadata.get("bounds", NO_BOUNDS).check(field.name, value)

    @classmethod
    def read(cls, table: object) -> Self:
        """Return the configuration that a stored table holds.

        Raises:
            UsageError: it is no table, or has a setting too many, too few, or a wrong one.
        """
        require(isinstance(table, Mapping), f"settings must be in a table, not {short(table)}")
        known = {field.name: field for field in dataclasses.fields(cls)}
        strange = next((str(name) for name in table if name not in known), None)
        require(strange is None, f"there is no setting {strange!r}{did_you_mean(strange, known)}")
        needed = (name for name, field in known.items() if field.default is MISSING)
        missing = next((name for name in needed if name not in table), None)
        require(missing is None, f"the setting {missing!r} is missing")
        return cls(**table)

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
        elif get_origin(option) is dict:
            if isinstance(value, Mapping):
                return dict(value)
        elif option is str and type(value) in (str, int, float):
            return str(value)  # TOML's val = 0.05 is a number
    expected = " or ".join(_describe(option) for option in options)
    choices = [
        str(c) for option in options if get_origin(option) is Literal for c in get_args(option)
    ]
    hint = did_you_mean(str(value), choices)
    raise UsageError(f"{name} must be {expected}, not {short(repr(value))}{hint}")


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
    return "a table" if get_origin(kind) is dict else names.get(kind, "none")
