"""Weights of a mixture, as its folder has them and as its model uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class MixtureWeights(NamedTuple):
    """Weights of a mixture's K parts.

    Attributes:
        fixed: one for each part, not negative; a mixture divides them by their sum.
        by_order: for each number m = 0 to N - 1 of tokens that the n-gram part may match of a
            context, the weights there, which sum to 1; empty if they are the same everywhere.
        gate: the coefficients of a gate, which is used instead of weights; empty without one.
    """

    fixed: Sequence[float]
    by_order: Sequence[Sequence[float]] = ()
    gate: Sequence[Sequence[float]] = ()
