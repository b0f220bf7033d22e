"""Log-linear mixture whose exponents depend on how the parts' distributions differ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from seqgen.engines.native import mixing
from seqgen.engines.native.mixing import NativeGate
from seqgen.engines.ops import Leaf, ops_of
from seqgen.models.distributions import normalise

if TYPE_CHECKING:
    from seqgen.models.inference import InferenceModel

# Log-probabilities are raised to this, so that no part rules a token out for all: exp(-20) is 2e-9.
LEAST = -20.0


class Gate:
    """Log-linear mixture p(w | past) ~ product over parts k of p_k(w | past)^g_k(past).

    The exponents g are linear in the means of each part's log-probabilities under each part's
    distribution, sum over w of p_j(w) log p_k(w): negative entropies (j = k) and cross-entropies.
    Their constants depend on the order matched, if a part reports it. All of it depends on the past
    alone, and the products are divided by their sum, so that they sum to 1 whatever the
    coefficients (products of experts, Hinton 1999; logistic mixing, Mahoney 2005).

    Args:
        table: (N + K^2, K), the exponents' constants for each of N orders, 1 if no part
            reports it, and the coefficients of the means.
        parts: the K parts.

    Attributes:
        guide: the number of the part that reports which order is matched; None without one.

    Raises:
        ValueError: the table does not fit the parts.
    """

    def __init__(self, table: Sequence[Sequence[float]], parts: Sequence[InferenceModel]) -> None:
        self.guide, orders = find_order_guide(parts)
        table = np.array(table, np.float64)
        if table.shape != (orders + len(parts) ** 2, len(parts)):
            raise ValueError(f"its gate of {table.size} coefficients does not fit its parts")
        self.constants, self.coefficients = table[:orders], table[orders:]
        self._converted: tuple[Any, Leaf, Leaf] | None = None

    def logits(self, log_probs: Leaf, matched: Leaf | None) -> Leaf:
        """Compute the mixture's unnormalised log-probabilities (..., V).

        Args:
            log_probs: of the parts, (..., K, V).
            matched: the order matched before each, (...); None without a guide.
        """
        ops = ops_of(log_probs)
        log_probs = ops.at_least(ops.wide(log_probs), LEAST)
        constants, coefficients = self._tables_like(log_probs)
        constants = constants[0] if matched is None else constants[matched]  # (..., K)
        with ops.full_precision(log_probs):
            # A product for each row alone: those of several rows at once would round differently.
            exponents = mean_cross_log_probs(log_probs)[..., None, :] @ coefficients  # (..., 1, K)
            return ((exponents + constants[..., None, :]) @ log_probs)[..., 0, :]

    def logits_of_step(
        self, logits: Sequence[np.ndarray], matched: np.ndarray | None
    ) -> np.ndarray:
        """Compute the mixture's unnormalised log-probabilities (B, V) of one step.

        Args:
            logits: of each of K parts, (B, V).
            matched: see `logits`.
        """
        if mixing.suits(logits):
            matched = np.zeros(len(logits[0]), np.int64) if matched is None else matched
            return self._native.mix(logits, matched)
        return self.logits(normalise(np.stack(logits, 1)), matched)

    @cached_property
    def _native(self) -> NativeGate:
        return NativeGate(self.constants, self.coefficients, LEAST)

    def _tables_like(self, log_probs: Leaf) -> tuple[Leaf, Leaf]:
        """Convert both tables to a type and device; every step of a text has the same."""
        kind = log_probs.dtype, getattr(log_probs, "device", None)
        if self._converted is None or self._converted[0] != kind:
            ops = ops_of(log_probs)
            tables = self.constants, self.coefficients
            each = (ops.like(ops.of(table, log_probs), log_probs) for table in tables)
            self._converted = (kind, *each)
        return self._converted[1:]


def find_order_guide(parts: Sequence[InferenceModel]) -> tuple[int | None, int]:
    """Find the first part that reports matched orders; return its number and its order count."""
    guide = next((n for n, part in enumerate(parts) if part.orders is not None), None)
    return guide, 1 if guide is None else parts[guide].orders


def mean_cross_log_probs(log_probs: Leaf) -> Leaf:
    """Compute each part's mean log-probability under each part's distribution, (..., K^2).

    Args:
        log_probs: (..., K, V), finite.
    """
    ops = ops_of(log_probs)
    means = ops.exp(log_probs) @ log_probs.swapaxes(-1, -2)  # (..., K, K)
    return means.reshape(*means.shape[:-2], -1)
