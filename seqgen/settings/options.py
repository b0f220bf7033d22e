"""Options of one call, set by a flag on the command line or a keyword in Python."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, get_args

from seqgen import hooks
from seqgen.errors import UsageError, did_you_mean
from seqgen.settings.setting import Config, Flag, require, shorten

if TYPE_CHECKING:
    from typing_extensions import Self


class Panel:
    """Headings under which help lists options, in this order."""

    ARGUMENTS = "Arguments"
    WHAT = "What to train"
    MEASURED = "What to measure"
    MODEL = "Model"
    TEXT = "Text"
    PAIRS = "Pairs"
    NGRAM = "N-gram"
    BUDGET = "Budget"
    OPTIMISATION = "Optimisation"
    SEARCH = "Search"
    LENGTH = "Length and number"
    FILTERS = "Filters"
    FORM = "Form of the text"
    SCORES = "Scores"
    TRANSLATED = "Translations by models of pairs"
    TESTS = "Significance"
    ATTENTION = "Attention to the source"
    SAVING = "Saving"
    OUTPUT = "Output"
    MACHINE = "Machine"
    PROCESSES = "Several processes"
    MORE = "More"
    OTHER = "Other options"


PANELS = tuple(title for name, title in vars(Panel).items() if name.isupper())
# The default of a setting that is made to fit the architecture, the text and the budget.
CHOSEN = "chosen"
Precision = Literal["auto", "float32", "float64", "bf16"]
WholeNumbers = Literal["int8", "int4"]
WHOLE_NUMBERS = get_args(WholeNumbers)
NumberFormat = Literal["float32", "float64", "bf16", WholeNumbers]
# Of commands that only write or score.
ReadingPrecision = Literal["auto", NumberFormat]
COUNT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:e\+?(\d{1,2}))?([kmb]?)", re.IGNORECASE)
THOUSANDS = {"": 0, "k": 3, "m": 6, "b": 9}


def parse_count(flag: str, text: str) -> int:
    """Parse a whole number such as "30000", "3e4", "30k" or "1.5M".

    Raises:
        UsageError: it means none, or none above 0; names the flag.
    """
    match = COUNT.fullmatch(text.strip())
    number = Fraction(0)
    if match is not None:
        digits, exponent, unit = match.groups()
        power = int(exponent or 0) + THOUSANDS[unit.lower()]
        number = Fraction(digits.rstrip(".")) * 10**power
    whole = number.denominator == 1 and number > 0
    require(
        whole, f"{flag} must be a whole number (30000, 3e4, 30k or 1.5M), not {shorten(text)!r}"
    )
    return int(number)


def parse_size(flag: str, text: str) -> int:
    """Parse a number of bytes such as "500M", "4G" or "1.5 GB"; the letters are powers of 1,000.

    Raises:
        UsageError: it means none, or none above 0; names the flag.
    """
    bare = text.strip().lower().removesuffix("b").strip()
    bare = bare[:-1] + "b" if bare.endswith("g") else bare
    try:
        return parse_count(flag, bare)
    except UsageError:
        why = f"{flag} must be a size such as 500M or 4G, not {shorten(text)!r}"
        raise UsageError(why) from None


@dataclass(frozen=True, kw_only=True)
class Options(Config):
    """Base class of the options of one call. Every subclass is made a dataclass.

    A field may be a group of options of its own, made by `group`; on the command line all of them
    are flags beside each other. `class X(Options, panel=Panel.MODEL)` says under which heading help
    lists those that name none themselves.
    """

    def __init_subclass__(cls, panel: str = "") -> None:
        super().__init_subclass__()
        for field in vars(cls).values():
            if isinstance(field, dataclasses.Field) and "flag" in field.metadata:
                flag = field.metadata["flag"]
                flag = dataclasses.replace(flag, panel=flag.panel or panel)
                field.metadata = {**field.metadata, "flag": flag}
        dataclass(cls, frozen=True, kw_only=True)

    @classmethod
    def name_of(cls, field: str) -> str:
        """Name a field in messages: its flag, or an argument's name in help."""
        flag = cls.__dataclass_fields__[field].metadata["flag"]
        if flag.positional and not flag.names:
            return flag.metavar.strip("[].") or "FILE"
        return flag.names[0].partition("/")[0] if flag.names else f"--{field.replace('_', '-')}"

    @classmethod
    def check(cls, field: str, value: Any) -> Any:
        """Convert and check a field's value; the text "none" stays a text.

        Raises:
            UsageError: see `Config.check`; or the name of a file ends in another way than declared.
        """
        flag: Flag = cls.__dataclass_fields__[field].metadata["flag"]
        is_text = value == "none" and str in get_args(cls.types()[field])
        value = value if is_text else super().check(field, value)
        if (
            flag.endings
            and value is not None
            and PurePath(value).suffix.lower() not in flag.endings
        ):
            endings = " or ".join(flag.endings)
            name, read = cls.name_of(field), f"takes a file that ends in {endings}"
            reason = f"writes {endings} files: give {shorten(value)} such a name"
            raise UsageError(f"{name} {reason if flag.writes else read}")
        return value

    @classmethod
    def flags(cls) -> Iterator[tuple[str, dataclasses.Field, Any]]:
        """Yield the name, field and type of every option: its own, then inherited ones.

        Those of its groups stand where the group does.
        """
        types, fields = cls.types(), cls.fields()
        names = [name for name in cls.__annotations__ if name in fields]
        for name in dict.fromkeys([*names, *fields]):
            if is_group(types[name]):
                yield from types[name].flags()
            else:
                yield name, fields[name], types[name]

    @classmethod
    def take(cls, values: dict[str, Any]) -> Self:
        """Build the options from values by name, and remove those from `values`.

        Raises:
            UsageError: a value is out of bounds, or values contradict each other.
        """
        own = {}
        for name, kind in cls.types().items():
            if name in values:
                own[name] = values.pop(name)
            elif is_group(kind):
                own[name] = kind.take(values)
        return cls(**own)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Build the options from keywords, including those of nested groups.

        Raises:
            UsageError: see `take`; or there is no such option.
        """
        options = cls.take(values)
        for name in values:
            hint = did_you_mean(name, [known for known, _, _ in cls.flags()])
            raise UsageError(f"there is no option {name!r}{hint}")
        return options

    @property
    def keywords(self) -> dict[str, Any]:
        """The value of each option by name, including nested groups, for `of`."""
        return {option.field.name: option.value for option in self.values()}

    @property
    def groups(self) -> list[Options]:
        """The nested groups of options, in order."""
        values = (getattr(self, name) for name in self.fields())
        return [value for value in values if isinstance(value, Options)]

    @property
    def given(self) -> list[str]:
        """The flags whose value differs from the default, in order."""
        return [option.flag for option in self.values() if option.is_given]


def group(options: type[Options]) -> Any:
    """Declare a field that is a nested group of options, all at their defaults."""
    return dataclasses.field(default_factory=options, metadata={"flag": Flag()})


@functools.cache
def added_options(*places: str) -> type[Options]:
    """Build the group of all options that plugins add at a place; see `hooks.Plugin.options`.

    It has a field for each plugin that adds some there: its group, `of_NAME`. Of several places,
    the last one where a plugin adds some counts.
    """
    added = [hooks.options(place) for place in places]
    groups = {f"of_{name}": kind for one in added for name, kind in one.items()}
    fields = {name: group(kind) for name, kind in groups.items()}
    return type("AddedOptions", (Options,), {"__annotations__": dict(groups), **fields})


def settings_group(*configs: type[Config], only: Iterable[str] = ()) -> type[Options]:
    """Build the group of options for settings that have a flag; unset ones are None.

    Args:
        configs: the configurations that declare them. Those with a `panel` have a flag.
        only: their names, if it is not all of them.
    """
    only = frozenset(only)
    fields: dict[str, Any] = {}
    types: dict[str, Any] = {}
    for config in configs:
        for name, field in config.fields().items():
            flag = field.metadata["flag"]
            if flag.panel and (not only or name in only):
                nothing = field.default is None or field.default is False
                shown = flag.without or ("" if nothing else str(field.default))
                flag = dataclasses.replace(flag, without=shown)
                metadata = {**field.metadata, "flag": flag}
                fields[name] = dataclasses.field(default=None, metadata=metadata)
                types[name] = config.types()[name] | None
    return type("Settings", (Options,), {"__annotations__": types, **fields})


def is_group(kind: Any) -> bool:
    """Check whether a field's type is a group of options."""
    return isinstance(kind, type) and issubclass(kind, Options)


def with_default(options: type[Config], name: str, default: Any, **flag: Any) -> Any:
    """Redeclare the field `name` of `options` with another default.

    Args:
        options: the class that declares it.
        name: the field's.
        default: its default here.
        flag: what else differs of its flag, see `Flag`.
    """
    metadata = options.__dataclass_fields__[name].metadata
    changed = {"flag": dataclasses.replace(metadata["flag"], **flag)}
    return dataclasses.field(default=default, metadata={**metadata, **changed})


def redeclare(options: type[Config], name: str, **flag: Any) -> Any:
    """Redeclare the field `name` of `options` in a group that has only some of its fields.

    Args:
        options: the class that declares it.
        name: the field's.
        flag: what differs of its flag, see `Flag`.
    """
    return with_default(options, name, options.__dataclass_fields__[name].default, **flag)
