"""Number of hypothesis examples per property test."""

from __future__ import annotations

from hypothesis import settings

# Of hypothesis; the profiles are registered in conftest.py.
ALL, FEW = 100, 34
ALWAYS = 5


def examples(number: int) -> int:
    """Return how many are drawn of a number of examples: a third, unless all are asked for."""
    return max(min(number, ALWAYS), number * settings.default.max_examples // ALL)
