"""The scores of given tokens: log-probabilities, and hits or ranks if they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

Want = Literal["log_probs", "hits", "ranks"]


@dataclass(frozen=True)
class Scores:
    """How a model finds the targets.

    Attributes:
        log_probs: (B, T), in nats.
        hits: (B, T) of bool, whether each is what greedy decoding would choose; None where not
            wanted.
        ranks: (B, T) of int64, how many tokens are more probable; of equals the smaller id
            counts as more probable, so that rank 0 is a hit. None where not wanted.
    """

    log_probs: Tensor
    hits: Tensor | None = None
    ranks: Tensor | None = None

    @classmethod
    def cat(cls, pieces: Sequence[Scores]) -> Scores:
        """Join the scores of consecutive pieces of the same rows."""

        def joined(name: str) -> Tensor | None:
            parts = [getattr(piece, name) for piece in pieces]
            return None if parts[0] is None else torch.cat(parts, 1)

        return cls(*map(joined, ("log_probs", "hits", "ranks")))


class Predictions(ABC):
    """The distributions after each of some tokens (B, T), which need not be written out."""

    @abstractmethod
    def log_probs(self, targets: Tensor) -> Tensor:
        """Return the log-probability of each target (B, T), in nats."""

    @abstractmethod
    def best(self) -> Tensor:
        """Return the most probable token (B, T) after each; of equals the smallest id."""

    @abstractmethod
    def rows(self, places: Tensor) -> Tensor:
        """Return the log-probabilities (M, V) at places (M,), counted along the rows of (B, T)."""

    @abstractmethod
    def ranks(self, targets: Tensor) -> Tensor:
        """Return how many tokens are before each target (B, T), see `Scores`."""

    def hits(self, targets: Tensor) -> Tensor:
        """Return whether each target (B, T) is the most probable token, of equals the first."""
        return self.best() == targets

    def score(self, targets: Tensor, want: Want) -> Scores:
        """Return what is wanted of the targets (B, T)."""
        log_probs = self.log_probs(targets)
        if want == "log_probs":
            return Scores(log_probs)
        if want == "hits":
            return Scores(log_probs, self.hits(targets))
        ranks = self.ranks(targets)
        return Scores(log_probs, ranks == 0, ranks)


class WrittenOut(Predictions):
    """Predictions whose logits (B, T, V) are at hand."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    @cached_property
    def norms(self) -> Tensor:
        """What is to be taken off the logits, (B, T, 1)."""
        return self.logits.logsumexp(-1, keepdim=True)

    def log_probs(self, targets: Tensor) -> Tensor:
        chosen = self.logits.gather(-1, targets.unsqueeze(-1))  # (B, T, 1)
        return (chosen - self.norms).squeeze(-1)

    def best(self) -> Tensor:
        return first_best(self.logits)

    def rows(self, places: Tensor) -> Tensor:
        return self.logits.flatten(0, 1)[places] - self.norms.flatten(0, 1)[places]

    def ranks(self, targets: Tensor) -> Tensor:
        return ranks_in(self.logits, targets)


def ranks_in(logits: Tensor, targets: Tensor) -> Tensor:
    """Return how many of V tokens are before each target, see `Scores`.

    Args:
        logits: (..., V).
        targets: (...) of int64.
    """
    targets = targets.unsqueeze(-1)
    chosen = logits.gather(-1, targets)  # (..., 1)
    smaller = torch.arange(logits.shape[-1], device=logits.device) < targets
    return ((logits > chosen) | ((logits == chosen) & smaller)).sum(-1)


def first_best(log_probs: Tensor) -> Tensor:
    """Return the argmax of the last dimension; of equals the first."""
    best = log_probs.max(-1, keepdim=True).values
    ids = torch.arange(log_probs.shape[-1], device=log_probs.device)
    return torch.where(log_probs == best, ids, log_probs.shape[-1]).min(-1).values
