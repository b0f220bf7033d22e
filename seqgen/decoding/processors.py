"""Filters on the next token's distribution: pure functions of history and log-probabilities.

They apply in a fixed order: first what can never be written (`Forbid`), then temperature, top-k,
top-p. Each takes and returns normalised log-probabilities (B, V), so that each sees what the
one before left. None leaves nothing: the most probable token always stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqgen.errors import UsageError

# (history: each row's tokens so far, log_probs (B, V)) -> log_probs (B, V)
Processor = Callable[[Sequence[Sequence[int]], Tensor], Tensor]

IMPOSSIBLE = -torch.inf


def normalise(log_probs: Tensor) -> Tensor:
    """Return log-probabilities that sum to one again, over the last dimension."""
    return log_probs.log_softmax(-1)


@dataclass(frozen=True)
class Forbid:
    """Tokens that are never written: pad, bos, unk; EOS where texts have no end, else newline."""

    ids: tuple[int, ...]

    def __call__(self, history: Sequence[Sequence[int]], log_probs: Tensor) -> Tensor:
        kept = log_probs.clone()
        kept[:, list(self.ids)] = IMPOSSIBLE
        nothing = (kept == IMPOSSIBLE).all(-1, keepdim=True)  # (B, 1)
        if nothing.any():
            # A count-based model may hold only these possible: then all others are alike.
            others = torch.zeros_like(kept)
            others[:, list(self.ids)] = IMPOSSIBLE
            kept = torch.where(nothing, others, kept)
        return normalise(kept)


@dataclass(frozen=True)
class Temperature:
    """Divides log-probabilities by T: below 1 sharper, above 1 flatter. 0 is the argmax."""

    temperature: float

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(f"--temperature is at least 0, not {self.temperature}")

    def __call__(self, history: Sequence[Sequence[int]], log_probs: Tensor) -> Tensor:
        if self.temperature == 0:
            return TopK(1)(history, log_probs)
        # From the largest on, and with a divisor that float32 holds with its inverse: else all
        # of a row, or -inf over infinity, may leave the numbers there are.
        below = log_probs - log_probs.max(-1, keepdim=True).values
        return normalise(below / min(max(self.temperature, 1e-37), 1e37))


@dataclass(frozen=True)
class TopK:
    """Keeps exactly the k most probable tokens; of equals, those of smaller id."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise UsageError(f"--top-k is at least 1, not {self.k}")

    def __call__(self, history: Sequence[Sequence[int]], log_probs: Tensor) -> Tensor:
        if self.k >= log_probs.shape[-1]:
            return log_probs
        order = log_probs.sort(dim=-1, descending=True, stable=True).indices
        kept = order[:, : self.k]
        filtered = torch.full_like(log_probs, IMPOSSIBLE)
        return normalise(filtered.scatter(-1, kept, log_probs.gather(-1, kept)))


@dataclass(frozen=True)
class TopP:
    """Keeps the smallest set of tokens whose mass reaches p (Holtzman et al. 2020).

    A token stays while the mass before it, in order of probability, is below p.
    """

    p: float

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise UsageError(f"--top-p is from 0 to 1, not {self.p}")

    def __call__(self, history: Sequence[Sequence[int]], log_probs: Tensor) -> Tensor:
        if self.p == 1:
            return log_probs
        ordered, order = log_probs.sort(dim=-1, descending=True, stable=True)
        mass = ordered.double().exp()
        before = mass.cumsum(-1) - mass  # (B, V)
        keep = before < self.p
        keep[:, 0] = True
        ordered = ordered.masked_fill(~keep, IMPOSSIBLE)
        return normalise(torch.empty_like(log_probs).scatter(-1, order, ordered))
