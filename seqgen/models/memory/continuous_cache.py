"""A model beside a cache of what followed where its features were alike (Grave et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from seqgen.configs.scoring import CacheConfig
from seqgen.models.base import LanguageModel, NeuralLanguageModel
from seqgen.models.memory.recent import (
    FEWEST_TOGETHER,
    NOTHING,
    CacheHits,
    Recent,
    log_weight_of,
    recall,
    with_weights,
)
from seqgen.models.scores import Predictions, Scores, Want, WrittenOut, first_best, ranks_in
from seqgen.models.state import State

# Scoring compares at most so many pairs of positions at a time (16 MB in float32).
PAIRS_AT_ONCE = 1 << 22


@dataclass
class CacheState(State):
    """The model's own state, and the positions in the cache."""

    child: State | None
    recent: Recent


class Cached(LanguageModel):
    """p(w | past) = (1 - lambda) p_model(w | past) + lambda p_cache(w | past).

    p_cache(w | x_1 .. x_t) is proportional to sum_i 1[w = x_{i+1}] exp(theta h_t . h_i) over the
    last N positions i < t, with h the features that the model's head reads: equations (2) and (3)
    of Grave, Joulin and Usunier (2017), "Improving neural language models with a continuous
    cache". Before the second token of a text the cache is empty, and the model is alone.

    Args:
        inner: the model, which stays as it is.
        cache: N, lambda and theta.
    """

    def __init__(self, inner: NeuralLanguageModel, cache: CacheConfig) -> None:
        super().__init__()
        self.inner, self.cache, self.config = inner, cache, inner.config
        self.window, self.rows_at_least = inner.window, inner.rows_at_least

    @property
    def parts(self) -> Sequence[LanguageModel]:
        return [self.inner]

    def parameter_count(self) -> int:
        """Return the number of the model's numbers."""
        return self.inner.parameter_count()

    def start(self, batch: int, stride: int | None = None) -> CacheState:
        return CacheState(self.inner.start(batch, stride), self._empty(batch))

    def _empty(self, batch: int) -> Recent:
        return Recent.empty(batch, self.inner.head.weight)

    def forward(
        self, tokens: Tensor, state: CacheState | None = None, last: int | None = None
    ) -> tuple[Tensor, CacheState | None]:
        logits, recalled, state = self._read(tokens, state, last)
        return CachedPredictions(logits, recalled, self.cache).log_distributions, state

    def predictions(self, tokens: Tensor, state: CacheState) -> tuple[Predictions, CacheState]:
        logits, recalled, state = self._read(tokens, state)
        return CachedPredictions(logits, recalled, self.cache), state

    def _read(
        self, tokens: Tensor, state: CacheState | None, last: int | None = None
    ) -> tuple[Tensor, CacheHits, CacheState | None]:
        """Return the model's logits, what of the cache is like each position, and the state."""
        past = state or CacheState(None, self._empty(tokens.shape[0]))
        features, child = self.inner.hidden(tokens, past.child)  # (B, T, H)
        logits = self.inner.logits(features, tokens, past.child, last)
        recent = past.recent.extended(features, tokens)
        # A position's word is the one read after it; that of the newest is yet to come.
        there = recent.tokens[:, :-1] >= 0
        words = torch.where(there, recent.tokens[:, 1:], NOTHING)
        queries = features if last is None else features[:, -last:]
        recalled = recall(queries, recent.features[:, :-1], words, self.cache.size)
        after = None if child is None else CacheState(child, recent.last(self.cache.size))
        return logits, recalled, after

    @property
    def most_at_once(self) -> int:
        pairs = PAIRS_AT_ONCE // (self.cache.size + FEWEST_TOGETHER)
        return min(self.inner.most_at_once, max(1, pairs))


class CachedPredictions(Predictions):
    """What a model and its cache say after each of some tokens.

    Args:
        logits: (B, T, V) of the model.
        recalled: what its cache finds.
        cache: how they are mixed.
    """

    def __init__(self, logits: Tensor, recalled: CacheHits, cache: CacheConfig) -> None:
        self.model, self.words, self.strength = WrittenOut(logits), recalled.words, cache.strength
        self.log_weights = log_weights(recalled.scores, cache.flatness)  # (B, T, W)
        filled = (recalled.scores > -torch.inf).any(-1)
        self.log_rest = filled.to(logits.dtype) * math.log1p(-self.strength)

    def log_probs(self, targets: Tensor) -> Tensor:
        of_model = self.model.log_probs(targets) + self.log_rest
        if not self.strength:
            return of_model
        cached = log_weight_of(targets, self.log_weights, self.words) + math.log(self.strength)
        return torch.logaddexp(of_model, cached.to(of_model.dtype))

    @cached_property
    def log_distributions(self) -> Tensor:
        """The log-probabilities (B, T, V) of every token."""
        places = torch.arange(self.log_rest.numel(), device=self.log_rest.device)
        return self.rows(places).view_as(self.model.logits)

    def rows(self, places: Tensor) -> Tensor:
        log_weights, words, log_rest = (
            x.flatten(0, 1)[places] for x in (self.log_weights, self.words, self.log_rest)
        )
        log_probs = self.model.rows(places) + log_rest.unsqueeze(-1)
        return with_weights(log_probs, self.strength * log_weights.exp(), words)

    def best(self) -> Tensor:
        return first_best(self.log_distributions)

    def ranks(self, targets: Tensor) -> Tensor:
        return ranks_in(self.log_distributions, targets)


def log_weights(scores: Tensor, flatness: float) -> Tensor:
    """Return the log-softmax of theta times scores (..., W); -inf all along where none is seen."""
    seen = scores > -torch.inf
    scaled = (flatness * scores).masked_fill(~seen, -torch.inf)  # 0 times -inf is no number
    norms = scaled.logsumexp(-1, keepdim=True)
    return scaled - norms.clamp(min=torch.finfo(norms.dtype).min)


class SeveralCaches(Cached):
    """A model and its cache at several flatnesses, not mixed: what fitting needs in one pass.

    `score` returns log-probabilities (B, T, 1 + F): the model's, then that of the cache at each
    flatness. An empty cache says what the model says, so that it never counts.
    """

    def __init__(
        self, inner: NeuralLanguageModel, cache: CacheConfig, flatnesses: Sequence[float]
    ) -> None:
        super().__init__(inner, cache)
        self.flatnesses = tuple(flatnesses)

    def score(
        self, tokens: Tensor, targets: Tensor, state: State, want: Want = "log_probs"
    ) -> tuple[Scores, State]:
        length, pieces = max(1, self.most_at_once // tokens.shape[0]), []
        for piece, piece_targets in zip(
            tokens.split(length, 1), targets.split(length, 1), strict=True
        ):
            logits, recalled, state = self._read(piece, state)
            model = WrittenOut(logits).log_probs(piece_targets)
            empty = (recalled.scores == -torch.inf).all(-1)
            each = [
                log_weight_of(piece_targets, log_weights(recalled.scores, flatness), recalled.words)
                for flatness in self.flatnesses
            ]
            each = [torch.where(empty, model, cached) for cached in each]
            pieces.append(Scores(torch.stack([model, *each], -1)))
        return Scores.cat(pieces), state
