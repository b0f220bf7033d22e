"""Settings: declaration of typed fields with documentation and bounds, and their checks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args, get_origin

from seqgen.errors import SeqgenError, UsageError, did_you_mean

if TYPE_CHECKING:
    from typing_extensions import Self


Number = int | float

# What no size, seed or count may pass: ids, seeds and file positions are 64-bit numbers.
MOST_SEED = (1 << 63) - 1
MOST_TOKENS = (1 << 31) - 1
MOST_STEPS = 10**12
# Texts that are worked on side by side.
MOST_ROWS = 1 << 16
# Texts that are written for each that is kept.
MOST_CANDIDATES = 10**6
# Widths past these make matrices of terabytes, which no machine can begin to train.
MOST_WIDTH = 1 << 20
MOST_LAYERS = 1000
MOST_RATE = 1e6
# Training with a loss this high, in nats per token, does not recover; a uniform guess costs log V,
# about ten.
MOST_NATS = 1e6


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Allowed range of a number; None means no limit.

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
        """Return the end of a sentence, such as "from 1 to 10" or "more than 0"."""
        if self.low is not None and self.high is not None:
            return f"from {_plain(self.low)} to {_plain(self.high)}"
        words = {"at least": self.low, "more than": self.above}
        words |= {"at most": self.high, "less than": self.below}
        return " and ".join(f"{word} {_plain(x)}" for word, x in words.items() if x is not None)

    def check(self, name: str, value: Number | None) -> None:
        """Refuse a number outside the bounds; None passes.

        Raises:
            UsageError: names the setting, which is `name`, and the bounds.
        """
        if value is None or value in self:
            return
        too_high = self.high is not None and not value <= self.high
        told = self if too_high else self.without_sanity_limit()
        raise UsageError(f"{name} must be {told}, not {shorten(value).removesuffix('.0')}")

    def without_sanity_limit(self) -> Bounds:
        """Drop a limit that only catches typing errors, for the documentation."""
        keep = self.high is None or self.high <= SANE
        return self if keep else dataclasses.replace(self, high=None)


NO_BOUNDS = Bounds()
# Upper limits above this only catch typing errors, so they are not documented.
SANE = 1000


def _plain(number: Number) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


def shorten(value: object) -> str:
    """Shorten a value for a message: a very long number to its first digits and its length."""
    try:
        text = str(value)
    except ValueError:  # more digits than Python writes
        return "a number of thousands of digits"
    return text if len(text) <= 40 else f"{text[:20]}... ({len(text):,} characters)"


# Instead of a default: the setting must be given.
REQUIRED = MISSING
# The type of a setting says what it is if it is not given: None, False or ().
_BY_TYPE = object()


def setting(
    doc: str,
    default: Any = _BY_TYPE,
    bounds: Bounds | None = None,
    *,
    low: Number | None = None,
    above: Number | None = None,
    high: Number | None = None,
    below: Number | None = None,
    search: Any = None,
    **flag: Any,
) -> Any:
    """Return a dataclass field with its documentation and bounds.

    Args:
        doc: what it means, in a line.
        default: its value if it is not given, or REQUIRED. By default it follows from the type:
            None if that is allowed, False for a bool, () for a tuple; others are required.
        bounds: what it may be (`settings.ranges`); None for what the next four say.
        low: the least it may be.
        above: what it is more than.
        high: the most it may be.
        below: what it is less than.
        search: the range or the values that `tune` tries of it, a `Dimension`; None for a
            setting that it leaves alone unless it is asked.
        flag: how it stands on the command line, see `Flag`.
    """
    bounds = bounds or Bounds(low=low, above=above, high=high, below=below)
    metadata = {"doc": doc, "bounds": bounds, "search": search, "flag": Flag(**flag)}
    return dataclasses.field(default=default, metadata=metadata)


def argument(doc: str, metavar: str, **about: Any) -> Any:
    """Declare the field of a positional argument, called `metavar` in help.

    `about` is what else there is to say of it; see `setting`.
    """
    return setting(doc, metavar=metavar, positional=True, **about)


def file_argument(doc: str, metavar: str = "[FILE]", **about: Any) -> Any:
    """Declare the field of a positional argument that names files."""
    return argument(doc, metavar, reads="file", **about)


def _default_of_type(kind: Any) -> Any:
    """Derive a setting's default from its type: None, False, (), or required."""
    kind = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    if kind.endswith("| None"):
        return None
    return False if kind == "bool" else () if kind.startswith("tuple[") else REQUIRED


@dataclass(frozen=True)
class OptionRule:
    """Options that one option excludes or needs, and the error if the rule is broken.

    Attributes:
        others: the other options as they are typed. "--metric" stands for any value but the
            default, "--metric bleu" for that value, "--model ..." for several; "DATA" is an
            argument, and a heading of help (`Panel`) is any option under it. "lora" and
            "positions=rope" are settings, for rules of settings. Options that a command does not
            have, such as those of a plugin that is not installed, break no rule.
        message: the error, with {flag} for the option, {typed} for it and its value, and {other}
            for the other option; "" for the default of each kind of rule.
    """

    others: tuple[str, ...]
    message: str = ""


NOT_TOGETHER = "{flag} cannot be combined with {other}"
ONE_MODEL = OptionRule(("--model ...",), "{flag} takes one model")
# One rule, several, or options that the default message suits.
OptionRules = str | OptionRule | tuple[str | OptionRule, ...]


@dataclass(frozen=True, kw_only=True)
class Flag:
    """Command-line properties of a setting beyond its type, default and help.

    Attributes:
        panel: the heading that help lists it under.
        names: as they are typed, if that is not `--` and the setting's name; long ones after the
            first are old spellings, which help leaves out.
        metavar: what stands for the value in help; by default it follows from the type.
        without: what happens without it, in words, where the default itself would not say that.
        reads: the name of what turns the typed text into the value (`cli.shell.flags.READERS`).
        completes: the name of what a shell completes (`cli.shell.flags.COMPLETIONS`).
        listed: its values, of a tuple, stand in one text with commas between them.
        positional: it is an argument and has no name.
        common: most runs need it, so that the short help (-h) lists it.
        writes: its value names a file or folder that the command writes.
        endings: how the name of its file ends.
        hidden: help leaves it out.
        conflicts: options that cannot be given with it.
        needs: options of which one must be given with it.
        only_for: values of other options, such as "--metric bleu", of which it needs one.
    """

    panel: str = ""
    names: tuple[str, ...] = ()
    metavar: str = ""
    without: str = ""
    reads: str = ""
    completes: str = ""
    listed: bool = False
    positional: bool = False
    common: bool = False
    writes: bool = False
    endings: tuple[str, ...] = ()
    hidden: bool = False
    conflicts: OptionRules = ()
    needs: OptionRules = ()
    only_for: OptionRules = ()


def require(condition: bool, message: str) -> None:
    """Raise a UsageError with `message` unless `condition` holds."""
    if not condition:
        raise UsageError(message)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base class of configurations. Every field is a plain value that JSON and TOML can hold."""

    # Fields that follow from the data and from other settings: no user sets them.
    derived: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, kind in cls.__annotations__.items():
            field = vars(cls).get(name)
            if isinstance(field, dataclasses.Field) and field.default is _BY_TYPE:
                field.default = _default_of_type(kind)

    @classmethod
    def fields(cls) -> dict[str, dataclasses.Field]:
        """Return the settable fields by name, in order."""
        return {f.name: f for f in dataclasses.fields(cls) if f.name not in cls.derived}

    @classmethod
    @functools.cache
    def types(cls) -> dict[str, Any]:
        """Return the resolved type of each field."""
        return typing.get_type_hints(cls)

    @classmethod
    def name_of(cls, field: str) -> str:
        """Name a field for messages."""
        return field

    @classmethod
    def check(cls, field: str, value: Any) -> Any:
        """Convert a field's value to its type, and check its bounds.

        Raises:
            UsageError: it has another type, or is out of bounds or no choice; names the setting.
        """
        name = cls.name_of(field)
        value = conform(name, value, cls.types()[field])
        bounds = cls.__dataclass_fields__[field].metadata.get("bounds", NO_BOUNDS)
        for one in value if isinstance(value, tuple) else (value,):
            bounds.check(name, one)
        return value

    def __post_init__(self) -> None:
        """Check each value, see `check`, and the rules that fields declare, see `check_rules`."""
        for field in dataclasses.fields(self):
            value = self.check(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        check_rules(self)

    def values(self) -> Iterator[OptionValue]:
        """Yield every option with its value, including nested groups, in order."""
        for name, field in self.fields().items():
            value = getattr(self, name)
            if isinstance(value, Config):
                yield from value.values()
            else:
                yield OptionValue(self.name_of(name), value, field)

    @classmethod
    def read(cls, table: object) -> Self:
        """Build the configuration from a stored table.

        Raises:
            UsageError: it is no table, or has a setting too many, too few, or a wrong one.
        """
        require(isinstance(table, Mapping), f"settings must be in a table, not {shorten(table)}")
        known = {field.name: field for field in dataclasses.fields(cls)}
        strange = next((str(name) for name in table if name not in known), None)
        require(strange is None, f"there is no setting {strange!r}{did_you_mean(strange, known)}")
        needed = (name for name, field in known.items() if field.default is MISSING)
        missing = next((name for name in needed if name not in table), None)
        require(missing is None, f"the setting {missing!r} is missing")
        return cls(**table)

    def to_dict(self) -> dict[str, Any]:
        """Convert the configuration to a JSON-compatible dictionary."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class OptionValue:
    """An option of a call and its value.

    Attributes:
        flag: its name as it is typed; of an argument, what help calls it.
        value: its value.
        field: the field that declares it.
    """

    flag: str
    value: Any
    field: dataclasses.Field

    @property
    def is_given(self) -> bool:
        """Whether the value differs from the default."""
        return bool(self.value != self.field.default)

    @property
    def each(self) -> tuple[str, ...]:
        """The values of an option as a sequence, even if it takes one; defaults in words."""
        several = self.value if isinstance(self.value, tuple) else (self.value,)
        return tuple(map(_shown, several)) or (self.field.metadata["flag"].without,)

    def meets(self, condition: str) -> bool:
        """Check whether the option meets the condition of an `OptionRule`."""
        if self.field.metadata["flag"].panel == condition:
            return self.is_given
        flag, *value = _words(condition)
        if flag != self.flag:
            return False
        if value == ["..."]:
            return len(self.each) > 1
        return value[0] in self.each if value else self.is_given


# The errors of rules that have no message of their own.
CONFLICT = "give {flag} or {other}, not both"
NEED = "{flag} belongs to {others}"
SETTING_NEEDS = "{flag} needs {others}"
ONLY_FOR = "{flag} is for {others}, not {value}"


def check_rules(*groups: Config) -> None:
    """Refuse options or settings that exclude each other, or that lack one which they need.

    Args:
        groups: all options of a call, or a configuration. A rule about options that are not among
            them holds, and so do the rules of an option that is turned off.

    Raises:
        UsageError: names the first option that breaks a rule.
    """
    options = [option for group in groups for option in group.values()]
    for option in options:
        off = option.value is False or not option.is_given
        if not off and (problem := _broken_rule(option, options)):
            raise UsageError(problem)


def _broken_rule(option: OptionValue, options: Sequence[OptionValue]) -> str | None:
    """Find the first rule of a given option that is broken, and build its error."""
    flag: Flag = option.field.metadata["flag"]
    words = {"flag": option.flag, "typed": f"{option.flag} {option.value}"}
    others = [other for other in options if other.flag != option.flag]
    for rule in _rules(flag.conflicts):
        for condition in rule.others:
            if met := next((other for other in others if other.meets(condition)), None):
                named = condition if condition.startswith(f"{met.flag} ") else met.flag
                return (rule.message or CONFLICT).format(**words, other=named)
    need = NEED if option.flag.startswith("-") else SETTING_NEEDS
    for declared, message in ((flag.needs, need), (flag.only_for, ONLY_FOR)):
        for rule in _rules(declared):
            flags = {_words(condition)[0] for condition in rule.others}
            known = [other for other in others if other.flag in flags]
            if known and not any(one.meets(c) for c in rule.others for one in known):
                words |= {"others": " or ".join(rule.others), "value": known[0].each[0]}
                return (rule.message or message).format(**words)
    return None


def _words(condition: str) -> list[str]:
    """Split a condition into the name of the option, and its value if there is one."""
    return condition.replace("=", " ").split()


def _rules(declared: OptionRules) -> list[OptionRule]:
    """List the rules that a flag declares; options without a message form one rule."""
    several = declared if isinstance(declared, tuple) else (declared,)
    plain = tuple(one for one in several if isinstance(one, str))
    rules = [one for one in several if isinstance(one, OptionRule)]
    return [OptionRule(plain), *rules] if plain else rules


def conform(name: str, value: Any, kind: Any) -> Any:
    """Convert `value` to the field type `kind`; parse text such as "0.1" or "true".

    Raises:
        UsageError: the value is not of that type, or not among the choices.
    """
    options, choices = _options(kind)
    if type(None) in options and (value is None or (value == "none" and "none" not in choices)):
        return None
    for option, origin in options.items():
        plain = option in (bool, int, float, str)
        is_class = isinstance(option, type) and origin is None  # Python 3.10 says so of list[int]
        if is_class and not plain and isinstance(value, option):
            return value  # a path, or a group of settings
        if option is Path and isinstance(value, str):
            return Path(value)
        if origin is Literal:
            if str(value) in get_args(option):
                return str(value)  # TOML's clip_norm_type = 2 is a number
        elif option is bool:
            if str(value).lower() in ("true", "false"):
                return str(value).lower() == "true"
        elif option in (int, float):
            number = _number(value, option)
            if number is not None:
                return number
        elif origin is dict:
            if isinstance(value, Mapping):
                return dict(value)
        elif origin is tuple:
            if isinstance(value, str | Iterable):
                each = get_args(option)[0]
                if isinstance(value, str):
                    value = value.split(",") if each in (int, float) else (value,)
                return tuple(value if each is str else (conform(name, x, each) for x in value))
        elif option is str and type(value) in (str, int, float):
            return str(value)  # TOML's val = 0.05 is a number
    expected = " or ".join(_describe(option) for option in options)
    hint = did_you_mean(str(value), choices)
    raise UsageError(f"{name} must be {expected}, not {shorten(repr(value))}{hint}")


@functools.cache
def _options(kind: Any) -> tuple[dict[Any, Any], list[str]]:
    """List the alternatives of a type, each with its origin, and all its literal choices."""
    options = get_args(kind) if get_origin(kind) in (typing.Union, UnionType) else (kind,)
    origins = {option: get_origin(option) for option in options}
    choices = [str(c) for option in options if origins[option] is Literal for c in get_args(option)]
    return origins, choices


def _number(value: Any, kind: type) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, Real | str):  # NumPy's numbers, too
        return None
    if kind is int and isinstance(value, Integral | str):
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
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a text",
        Path: "a path",
    }
    origins = {dict: "a table", tuple: "a list"}
    return origins.get(get_origin(kind)) or names.get(kind, "none")


def texts(flag: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """Check the texts of an option that takes several; a bare `str` is one.

    Raises:
        UsageError: one of them is empty or no text; names the flag.
    """
    several = (given,) if isinstance(given, str) else tuple(given)
    for text in several:
        why = why_not_utf8(text)
        require(why is None, f"{flag} {why}")
        require(text != "", f"{flag} needs a text that is not empty")
    return several


def why_not_utf8(value: object) -> str | None:
    """Explain why `value` cannot be written as UTF-8, to end a sentence; None if it can."""
    if not isinstance(value, str):
        return f"is not text but {value!r}"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code, at = ord(value[error.start]), len(value[: error.start].encode())
        # Python makes U+DC80 to U+DCFF of an argument's bytes that are not UTF-8.
        escaped = 0xDC80 <= code <= 0xDCFF
        bad = f"byte 0x{code - 0xDC00:02x}" if escaped else f"U+{code:04X}"
        return f"is not UTF-8 text: {bad} at offset {at}"
    return None


def checked_strings(text: str | Iterable[str]) -> Iterator[str]:
    """Yield the strings of a text or several, checked to be valid UTF-8.

    Raises:
        SeqgenError: it cannot, or one is no string.
    """
    for piece in text if isinstance(text, Iterable) and not isinstance(text, str) else [text]:
        if (why := why_not_utf8(piece)) is not None:
            raise SeqgenError(f"the text {why}")
        yield piece


@dataclass(frozen=True)
class Span:
    """A search range: the numbers from `low` to `high`.

    Attributes:
        low: the least.
        high: the most.
        log: draw their logarithms evenly, not the numbers.
        relative: `low` and `high` are multiples of the value that seqgen would take.
    """

    low: Any
    high: Any
    log: bool = False
    relative: bool = False

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low:.4g}:{self.high:.4g}" + (":log" if self.log else "")


@dataclass(frozen=True)
class Choices:
    """A search range: a few values to choose from.

    Attributes:
        values: them.
        relative: they are multiples of the value that seqgen would take.
    """

    values: tuple[Any, ...]
    relative: bool = False

    def __contains__(self, value: Any) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return ",".join(map(_shown, self.values))


Dimension = Span | Choices


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)
