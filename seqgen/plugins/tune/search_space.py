"""Search dimensions of `seqgen tune`: parsed from `--search`, or scaled around a default."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, get_args

from seqgen.settings import Bounds, Choices, Dimension, Span, conform, require

HOW = "--search takes KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=a,b,c"


def read_search(text: str) -> tuple[str, Dimension]:
    """Parse a `--search` value into a setting's name and a dimension of texts.

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


def scale_dimension(dimension: Dimension, value: Any) -> Dimension:
    """Scale a relative dimension by its setting's default value."""
    if not dimension.relative:
        return dimension
    if isinstance(dimension, Span):
        return Span(dimension.low * value, dimension.high * value, dimension.log)
    kind = type(value)
    return Choices(_distinct(max(kind(1), kind(value * times)) for times in dimension.values))


def convert_dimension(name: str, dimension: Dimension, kind: Any, bounds: Bounds) -> Dimension:
    """Convert the values of a dimension to the type of its setting.

    Args:
        name: of the setting.
        dimension: its values, perhaps as texts.
        kind: its type.
        bounds: what it may be.

    Raises:
        UsageError: a value is of another type or out of bounds; a range is empty, or of a setting
            that is no number; or there is only one value.
    """
    if isinstance(dimension, Choices):
        values = _distinct(conform(name, value, kind) for value in dimension.values)
        for value in values:
            bounds.check(name, value if isinstance(value, int | float) else None)
        require(len(values) > 1, f"{name} has only one value to try: give it by --set {name}=VALUE")
        return Choices(values)
    number = any(part in (int, float) for part in (kind, *get_args(kind)))
    require(number, f"{name} is not a number: list its values, as {name}=a,b,c")
    low, high = (conform(name, end, kind) for end in (dimension.low, dimension.high))
    require(None not in (low, high), f"{name}=none has no place in a range")
    bounds.check(name, low)
    bounds.check(name, high)
    require(low < high, f"the range of {name} must rise: {low} is not less than {high}")
    require(not dimension.log or low > 0, f"the range of {name} begins at {low}: no :log then")
    return replace(dimension, low=low, high=high)


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))
