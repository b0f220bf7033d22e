"""Log-softmax and token draws in float32 by the compiled library."""

from __future__ import annotations

import numpy as np

from seqgen.engines.native.library import address, library


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Compute the log-probabilities (..., V) of logits."""
    logits = np.ascontiguousarray(logits)
    log_probs, size = np.empty(logits.shape, np.float32), logits.shape[-1]
    library().log_softmax(logits.size // size, size, address(logits), address(log_probs))
    return log_probs


def draw(
    logits: np.ndarray, uniforms: np.ndarray, never: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a token for each row, as `Forbid` and `CounterDraw` do.

    Args:
        logits: (B, V).
        uniforms: (B,) of float64, in [0, 1).
        never: tokens that are never drawn, each once; int64.

    Returns:
        Tokens (B,), -1 where it depends on the rounding of the row's probabilities, or where most
        of them are never drawn; and their log-probabilities (B,).
    """
    rows, size = logits.shape
    logits = np.ascontiguousarray(logits)
    tokens, log_probs = np.empty(rows, np.int64), np.empty(rows, np.float32)
    masses = np.empty(size, np.float32)
    given = address(logits), address(uniforms), address(never), never.size
    library().draw(rows, size, *given, *map(address, (masses, tokens, log_probs)))
    return tokens, log_probs
