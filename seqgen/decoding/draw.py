"""Choosing one token of each row: by a counter-based draw, or the most probable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from seqgen.hashing import uniforms

# The rows' (prompt, sample) numbers, the step t, log_probs (B, V) -> the chosen ids, B of them.
Choose = Callable[[Sequence[tuple[int, int]], int, Tensor], list[int]]


def greedy(rows: Sequence[tuple[int, int]], step: int, log_probs: Tensor) -> list[int]:
    """Choose the most probable token of each row; of equals, the one of smallest id."""
    # argmax promises nothing about ties; a stable sort does.
    best = log_probs.max(-1, keepdim=True).values
    ids = torch.arange(log_probs.shape[-1], device=log_probs.device)
    return torch.where(log_probs == best, ids, log_probs.shape[-1]).min(-1).values.tolist()


class CounterDraw:
    """Draws token t of sample j of prompt i from hash(seed, i, j, t) alone.

    The hash (`seqgen.hashing`) gives one uniform number, which is inverted through the
    cumulative distribution in float64: the first token whose cumulated mass exceeds it. So a
    text does not depend on the batch it was made in, nor on the device.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, rows: Sequence[tuple[int, int]], step: int, log_probs: Tensor) -> list[int]:
        prompts, samples = rows[0] if len(rows) == 1 else np.array(rows, dtype=np.int64).T
        draws = np.atleast_1d(uniforms(self.seed, prompts, samples, step))  # (B,)
        probs = np.exp(log_probs.cpu().numpy().astype(np.float64))
        cumulated = probs.cumsum(-1)  # (B, V)
        total = cumulated[:, -1:]
        # Rounding may leave the target at the total itself: then the last possible token.
        target = np.minimum(draws[:, None] * total, np.nextafter(total, 0))
        return (cumulated <= target).sum(-1).tolist()
