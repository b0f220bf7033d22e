"""Log-probabilities of the next token as NumPy arrays: normalization, checks, mixtures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqgen.engines.native import mixing
from seqgen.engines.native.library import library
from seqgen.engines.native.softmax import log_softmax
from seqgen.errors import SeqgenError

DAMAGED = "the model's probabilities are not numbers: its weights are damaged"


def normalise(logits: np.ndarray) -> np.ndarray:
    """Compute the log-softmax over the last dimension."""
    if logits.dtype == np.float32 and library() is not None:
        return log_softmax(logits)
    # ufunc.reduce takes half the time of the array methods that wrap it.
    shifted = logits - np.maximum.reduce(logits, -1, keepdims=True)
    shifted -= np.log(np.add.reduce(np.exp(shifted), -1, keepdims=True))
    return shifted


def require_numbers(log_probs: np.ndarray) -> np.ndarray:
    """Return log-probabilities (..., V); raise an error if a row contains NaN.

    Raises:
        SeqgenError: a row contains NaN; then all of it is NaN.
    """
    if np.isnan(log_probs[..., 0]).any():
        raise SeqgenError(DAMAGED)
    return log_probs


def mix_logits(logits: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Compute the log-probabilities (B, V) of a linear mixture from its parts' logits.

    Without the library the sum is taken in float64, so that one logarithm of the whole is enough. A
    probability below its least number, 5e-324 (-744.4 nats), becomes 0, and its logarithm -inf. No
    draw can tell, but `forward` and `score`, which add up logarithms, return the finite number.

    Args:
        logits: of each of K.
        weights: theirs, (K, 1, 1) or (K, B, 1).
    """
    if mixing.suits(logits):
        return mixing.mix(logits, weights[:, :, 0])
    probs = np.array(logits)  # (K, B, V); one call for all parts, since calls take the time
    probs -= np.maximum.reduce(probs, -1, keepdims=True)
    probs = np.exp(probs, dtype=np.float64)
    probs *= weights / np.add.reduce(probs, -1, keepdims=True)
    total = np.add.reduce(probs, 0)
    with np.errstate(divide="ignore"):  # a token may be impossible under every part
        return np.log(total).astype(logits[0].dtype)
