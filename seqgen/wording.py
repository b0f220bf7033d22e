"""How messages write counts, lists of settings and names, and characters that cannot be shown."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any


def plural(count: float, noun: str) -> str:
    """Return a count and its noun: "1 minute", "1,334 steps", "0.5 epochs".

    Args:
        count: written with separators; a fraction with as many digits as it needs.
        noun: in the singular.
    """
    number = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun if count == 1 else noun + 's'}"


def listed(settings: Mapping[str, Any]) -> str:
    """Return settings and their values: "hidden_size 1,024, lr 0.01414"."""
    return ", ".join(f"{name} {shown(value)}" for name, value in settings.items())


def first_names(names: Sequence[str], most: int = 20) -> str:
    """Return at most so many names, and how many more there are: "A, B, C and 1,234 more"."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def shown(value: Any) -> str:
    """Return the value of a setting as a person reads it: "none", "true", "1,024", "0.01414"."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def visible(text: str, kept: str = "") -> str:
    """Return a text in which characters that cannot be shown are replaced.

    Spaces of every width can be shown; what breaks lines or turns the direction cannot.

    Args:
        text: any.
        kept: other characters that stay as they are.
    """
    return "".join(
        c if c.isprintable() or c in kept or unicodedata.category(c) == "Zs" else "\ufffd"
        for c in text
    )
