"""Distributions over the next token as arrays of log-probabilities, in NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Below every log-probability of a token that can occur.
LOWEST = -1e30


def normalise(logits: np.ndarray) -> np.ndarray:
    """Return log-probabilities that sum to one, over the last dimension."""
    # ufunc.reduce takes half the time of the array methods that wrap it.
    shifted = logits - np.maximum.reduce(logits, -1, keepdims=True)
    shifted -= np.log(np.add.reduce(np.exp(shifted), -1, keepdims=True))
    return shifted


def weighted_sum_of(logits: Sequence[np.ndarray], log_weights: Sequence[float]) -> np.ndarray:
    """Return the log of the weighted sum of distributions, each (B, V).

    Args:
        logits: of each.
        log_weights: the log of each one's weight, a number or (B, 1).
    """
    terms = [normalise(each) + weight for each, weight in zip(logits, log_weights, strict=True)]
    peak = np.maximum(terms[0], LOWEST)
    for term in terms[1:]:
        peak = np.maximum(peak, term)
    total = np.exp(terms[0] - peak)
    for term in terms[1:]:
        total += np.exp(term - peak)
    with np.errstate(divide="ignore"):  # a token may be impossible under every part
        return np.log(total) + peak
