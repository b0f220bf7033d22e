"""What a search tries for a setting: a range or a list, from its documentation or from the user."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, get_args

from seqgen.configs.settings import Bounds, conform, require

HOW = "--search takes KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=a,b,c"


@dataclass(frozen=True)
class Span:
    """The numbers from `low` to `high`.

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

    def around(self, value: Any) -> Span:
        """Return the span in numbers, for a setting that would otherwise have this value."""
        if not self.relative:
            return self
        return Span(self.low * value, self.high * value, self.log)

    def of_type(self, name: str, kind: Any, bounds: Bounds) -> Span:
        """Return the span with ends of the setting's type.

        Raises:
            UsageError: it is empty, out of bounds, or of a setting that is no number.
        """
        number = any(part in (int, float) for part in (kind, *get_args(kind)))
        require(number, f"{name} is no number: list its values, as {name}=a,b,c")
        low, high = (conform(name, end, kind) for end in (self.low, self.high))
        require(None not in (low, high), f"{name}=none has no place in a range")
        bounds.check(name, low)
        bounds.check(name, high)
        require(low < high, f"the range of {name} must rise: {low} is not less than {high}")
        require(not self.log or low > 0, f"the range of {name} begins at {low}: no :log then")
        return replace(self, low=low, high=high)

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low:.4g}:{self.high:.4g}" + (":log" if self.log else "")


@dataclass(frozen=True)
class Choices:
    """Some values.

    Attributes:
        values: them.
        relative: they are multiples of the value that seqgen would take.
    """

    values: tuple[Any, ...]
    relative: bool = False

    def around(self, value: Any) -> Choices:
        """Return the values, for a setting that would otherwise have this one."""
        if not self.relative:
            return self
        kind = type(value)
        return Choices(_distinct(max(kind(1), kind(value * times)) for times in self.values))

    def of_type(self, name: str, kind: Any, bounds: Bounds) -> Choices:
        """Return the values in the setting's type.

        Raises:
            UsageError: one is of another type or out of bounds; or there is only one.
        """
        values = _distinct(conform(name, value, kind) for value in self.values)
        for value in values:
            bounds.check(name, value if isinstance(value, int | float) else None)
        require(len(values) > 1, f"{name} has only one value to try: give it by --set {name}=VALUE")
        return Choices(values)

    def __contains__(self, value: Any) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return ",".join(map(_plain, self.values))


Dimension = Span | Choices


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def _plain(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def read_search(text: str) -> tuple[str, Dimension]:
    """Return the setting and the values of a `--search`, as yet without types.

    Raises:
        UsageError: it is none of its three forms.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    require(bool(equals and key and value), f"{HOW}, not {text!r}")
    name = key.replace("-", "_")
    low, colon, rest = value.partition(":")
    if not colon:
        parts = tuple(part.strip() for part in value.split(","))
        require(all(parts), f"{HOW}, not {text!r}")
        return name, Choices(parts)
    high, colon, log = rest.partition(":")
    require(not colon or log == "log", f"{HOW}, not {text!r}")
    return name, Span(low.strip(), high.strip(), log == "log")


# What `tune` tries of settings that several architectures have.
SHARED_SEARCH: dict[str, Dimension] = {
    "hidden_size": Choices((0.5, 1, 2), relative=True),
    "dropout": Span(0.0, 0.5),
}
