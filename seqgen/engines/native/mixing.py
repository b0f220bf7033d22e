"""Mixtures of float32 distributions by the compiled library, from the logits of their parts."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from seqgen.engines.native.library import address, library

# Compared with in less time than the scalar type.
FLOAT32 = np.dtype(np.float32)
BYTES = FLOAT32.itemsize


def suits(logits: Sequence[np.ndarray]) -> bool:
    """Check whether the library can mix these logits."""
    return library() is not None and all(part.dtype == FLOAT32 for part in logits)


def mix(logits: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Compute the log-probabilities (B, V) of a linear mixture.

    Args:
        logits: of each of K parts, (B, V).
        weights: theirs, (K, 1) or (K, B), of float64.
    """
    logits, parts = _addressed(logits)
    rows, size = logits[0].shape
    weights, made = np.ascontiguousarray(weights), np.empty((rows + 2, size), np.float32)
    mixed, given = address(made), (parts, address(weights), weights.shape[1])
    library().mix(rows, len(logits), size, *given, mixed + rows * size * BYTES, mixed)
    return made[:rows]


class NativeGate:
    """Coefficients of a gate for the compiled library; see `mixture.gate.Gate`.

    Args:
        constants: (N, K).
        coefficients: (K^2, K).
        least: log-probabilities are raised to this.
    """

    def __init__(self, constants: np.ndarray, coefficients: np.ndarray, least: float) -> None:
        self._tables = [np.array(table, FLOAT32) for table in (constants, coefficients)]
        self._given = *map(address, self._tables), least

    def mix(self, logits: Sequence[np.ndarray], matched: np.ndarray) -> np.ndarray:
        """Compute the unnormalised log-probabilities (B, V) of the log-linear mixture.

        Args:
            logits: of each of K parts, (B, V).
            matched: (B,) of int64, the row of `constants` for each row.
        """
        logits, parts = _addressed(logits)
        rows, size = logits[0].shape
        made = np.empty((rows + 2 * len(logits), size), np.float32)
        mixed = address(made)
        given = parts, address(matched), *self._given
        library().gate(rows, len(logits), size, *given, mixed + rows * size * BYTES, mixed)
        return made[:rows]


def _addressed(logits: Sequence[np.ndarray]) -> tuple[list[np.ndarray], ctypes.Array]:
    """Return arrays in one piece, and their addresses."""
    logits = [np.ascontiguousarray(part) for part in logits]
    return logits, (ctypes.c_void_p * len(logits))(*map(address, logits))
