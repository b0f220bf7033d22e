"""Scores of target tokens: log-probabilities, and optionally hits or ranks.

Arrays of an array model, tensors of a torch module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from seqgen.engines.ops import Leaf, ops_of

ScoreDetail = Literal["log_probs", "hits", "ranks"]


@dataclass(frozen=True)
class Scores:
    """Log-probabilities of target tokens, and optionally hits or ranks.

    Attributes:
        log_probs: (B, T), in nats.
        hits: (B, T) of bool, whether each is what greedy decoding would choose; None where not
            wanted.
        ranks: (B, T) of int64, how many tokens are more probable; of equals the smaller id
            counts as more probable, so that rank 0 is a hit. None where not wanted.
    """

    log_probs: Leaf
    hits: Leaf | None = None
    ranks: Leaf | None = None

    def map(self, f: Callable[[Leaf], Leaf]) -> Scores:
        """Apply `f` to the columns that are wanted."""
        columns = self.log_probs, self.hits, self.ranks
        return Scores(*(None if x is None else f(x) for x in columns))

    @classmethod
    def cat(cls, pieces: Sequence[Scores]) -> Scores:
        """Concatenate the scores of consecutive pieces of the same rows."""

        def joined(name: str) -> Leaf | None:
            parts = [getattr(piece, name) for piece in pieces]
            return None if parts[0] is None else ops_of(parts[0]).join(*parts)

        return cls(*map(joined, ("log_probs", "hits", "ranks")))


class Predictions(ABC):
    """Distributions after each of some tokens (B, T), computed only as far as needed."""

    @abstractmethod
    def log_probs(self, targets: Leaf) -> Leaf:
        """Compute the log-probability of each target (B, T), in nats."""

    @abstractmethod
    def best(self) -> Leaf:
        """Find the most probable token (B, T) after each; ties go to the smallest id."""

    @abstractmethod
    def rows(self, places: Leaf) -> Leaf:
        """Compute the log-probabilities (M, V) at places (M,) of the flattened (B, T)."""

    @abstractmethod
    def ranks(self, targets: Leaf) -> Leaf:
        """Count the tokens that rank before each target (B, T); see `Scores`."""

    def hits(self, targets: Leaf) -> Leaf:
        """Check whether each target (B, T) is the most probable token."""
        return self.best() == targets

    def score(self, targets: Leaf, want: ScoreDetail) -> Scores:
        """Score targets (B, T): log-probabilities, and hits or ranks if wanted."""
        log_probs = self.log_probs(targets)
        if want == "log_probs":
            return Scores(log_probs)
        if want == "hits":
            return Scores(log_probs, self.hits(targets))
        ranks = self.ranks(targets)
        return Scores(log_probs, ranks == 0, ranks)


class FromLogits(Predictions):
    """Predictions computed from complete logits (B, T, V)."""

    def __init__(self, logits: Leaf) -> None:
        self.logits = logits

    @cached_property
    def norms(self) -> Leaf:
        """Log normalizer of the logits, (B, T, 1)."""
        return ops_of(self.logits).logsumexp(self.logits)

    def log_probs(self, targets: Leaf) -> Leaf:
        chosen = ops_of(self.logits).pick(self.logits, targets[..., None])  # (B, T, 1)
        return (chosen - self.norms)[..., 0]

    def best(self) -> Leaf:
        return first_best(self.logits)

    def rows(self, places: Leaf) -> Leaf:
        flat = self.logits.reshape(-1, self.logits.shape[-1])  # (B T, V)
        return flat[places] - self.norms.reshape(-1, 1)[places]

    def ranks(self, targets: Leaf) -> Leaf:
        return ranks_in(self.logits, targets)


def ranks_in(logits: Leaf, targets: Leaf) -> Leaf:
    """Count the tokens that rank before each target in logits (..., V); see `Scores`.

    Args:
        logits: (..., V).
        targets: (...) of int64.
    """
    ops, targets = ops_of(logits), targets[..., None]
    chosen = ops.pick(logits, targets)  # (..., 1)
    smaller = ops.count(logits, logits.shape[-1]) < targets
    return ((logits > chosen) | ((logits == chosen) & smaller)).sum(-1)


def first_best(log_probs: Leaf) -> Leaf:
    """Compute the argmax over the last dimension; ties go to the smallest index."""
    return ops_of(log_probs).first_best(log_probs)
