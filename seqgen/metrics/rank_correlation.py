"""Spearman's rank correlation."""

from __future__ import annotations

import numpy as np


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each of N values, from 1; equal values share the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[group]


def spearman(first: np.ndarray, second: np.ndarray) -> float | None:
    """Return the correlation of the ranks of two lists of N values (Spearman 1904).

    None where it has no meaning: fewer than two values, or all equal.
    """
    if len(first) < 2:
        return None
    a, b = (ranks(np.asarray(side)) - (len(first) + 1) / 2 for side in (first, second))
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale else None
