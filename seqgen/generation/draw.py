"""Choosing one token per row: by a counter-based random draw, or the most probable one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from seqgen.hashing import uniforms

# Tokens that are summed at once: cumulating all of a large vocabulary takes most of a draw's time.
BLOCK = 512
# The rows' (prompt, sample) numbers, the step t, log_probs (B, V) -> the chosen ids, B of them.
Choose = Callable[[Sequence[tuple[int, int]], int, np.ndarray], list[int]]


def greedy(rows: Sequence[tuple[int, int]], step: int, log_probs: np.ndarray) -> list[int]:
    """Choose the most probable token of each row; among equals, the one with the smallest id."""
    return log_probs.argmax(-1).tolist()


class CounterDraw:
    """Draw token t of sample j of prompt i by hash(seed, i, j, t) alone.

    The hash (`seqgen.hashing`) gives one uniform number. The token drawn is the first whose
    cumulative probability, in float64, exceeds it. So a text depends neither on its batch nor on
    the device.

    Args:
        seed: of all rows, or of each of several (B,); steps may likewise differ.
    """

    def __init__(self, seed: int | np.ndarray) -> None:
        self.seed = seed

    def __call__(
        self, rows: Sequence[tuple[int, int]], step: int | np.ndarray, log_probs: np.ndarray
    ) -> list[int]:
        draws = self.uniforms(rows, step).tolist()
        if log_probs.shape[1] > BLOCK:
            return [_drawn(row, u) for row, u in zip(log_probs, draws, strict=True)]
        cumulated = np.exp(log_probs.astype(np.float64)).cumsum(-1)  # (B, V)
        return [_inverse(row, u * float(row[-1])) for row, u in zip(cumulated, draws, strict=True)]

    def uniforms(self, rows: Sequence[tuple[int, int]], step: int | np.ndarray) -> np.ndarray:
        """Compute the uniform random number (B,) of each row's draw."""
        prompts, samples = rows[0] if len(rows) == 1 else np.array(rows, dtype=np.int64).T
        return uniforms(self.seed, prompts, samples, step).reshape(-1)


def _drawn(log_probs: np.ndarray, u: float) -> int:
    """Draw a token from log_probs (V,) by inversion, cumulating single tokens in one block only."""
    masses = np.exp(log_probs.astype(np.float64))
    blocks = np.add.reduceat(masses, np.arange(0, len(masses), BLOCK)).cumsum()
    target = u * float(blocks[-1])
    block = _inverse(blocks, target)
    begin = block * BLOCK
    before = float(blocks[block - 1]) if block else 0.0
    return begin + _inverse(masses[begin : begin + BLOCK].cumsum(), target - before)


def _inverse(cumulated: np.ndarray, target: float) -> int:
    """Find the first index whose cumulative mass exceeds `target`."""
    # Rounding may make the target equal to the total; then choose the last possible place.
    target = min(target, math.nextafter(float(cumulated[-1]), 0.0))
    return int(cumulated.searchsorted(target, side="right"))
