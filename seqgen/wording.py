"""Numbers in sentences: one plural for every message."""

from __future__ import annotations


def plural(count: float, noun: str, several: str | None = None) -> str:
    """Return a count and its noun: "1 minute", "1,334 steps", "0.5 epochs".

    Args:
        count: written with separators; a fraction with as many digits as it needs.
        noun: in the singular.
        several: the plural, where that is not the noun with an s.
    """
    number = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun if count == 1 else several or noun + 's'}"
