"""Mixtures of float32 distributions by the compiled library, from the logits of their parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqgen.engines.native.library import address, library


def suits(logits: Sequence[np.ndarray]) -> bool:
    """Check whether the library can mix these logits."""
    return library() is not None and all(part.dtype == np.float32 for part in logits)


def mix(logits: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Compute the log-probabilities (B, V) of a linear mixture.

    Args:
        logits: of each of K parts, (B, V).
        weights: theirs, (K, 1) or (K, B), of float64.
    """
    logits, parts = _addressed(logits)
    rows, size = logits[0].shape
    weights, mixed = np.ascontiguousarray(weights), np.empty((rows, size), np.float32)
    scratch, given = np.empty((2, size), np.float32), (address(parts), address(weights))
    made = address(scratch), address(mixed)
    library().mix(rows, len(logits), size, *given, weights.shape[1], *made)
    return mixed


def mix_by_gate(
    logits: Sequence[np.ndarray],
    matched: np.ndarray,
    constants: np.ndarray,
    coefficients: np.ndarray,
    least: float,
) -> np.ndarray:
    """Compute the unnormalised log-probabilities (B, V) of a log-linear mixture; see `Gate`.

    Args:
        logits: of each of K parts, (B, V).
        matched: (B,) of int64, the row of `constants` for each row.
        constants: (N, K), of float32.
        coefficients: (K^2, K), of float32.
        least: log-probabilities are raised to this.
    """
    logits, parts = _addressed(logits)
    rows, size = logits[0].shape
    scratch, mixed = (np.empty((n, size), np.float32) for n in (2 * len(logits), rows))
    given = map(address, (parts, matched, constants, coefficients))
    made = address(scratch), address(mixed)
    library().gate(rows, len(logits), size, *given, least, *made)
    return mixed


def _addressed(logits: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return arrays in one piece, and an array of their addresses."""
    logits = [np.ascontiguousarray(part) for part in logits]
    return logits, np.array([address(part) for part in logits], np.int64)
