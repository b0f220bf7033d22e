"""Continuous cache: words that followed similar hidden states (Grave et al. 2017).

Over arrays or tensors; `arrays.py` and `model.py` have the models of each engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from seqgen.engines.ops import Leaf, ops_of
from seqgen.models.inference import InferenceModel
from seqgen.models.memory.recent import (
    FEWEST_TOGETHER,
    NOTHING,
    CacheHits,
    RecentPositions,
    add_word_weights,
    score_recent,
)
from seqgen.models.scores import FromLogits, Predictions, ScoreDetail, Scores, first_best, ranks_in
from seqgen.models.state import State
from seqgen.settings.scoring import CacheConfig

# Scoring compares at most so many pairs of positions at a time (16 MB in float32).
PAIRS_AT_ONCE = 1 << 22


def log_total(x: Leaf) -> Leaf:
    """Compute log(sum(exp(x))) over the last axis, (...), allowing all -inf."""
    if not isinstance(x, np.ndarray):
        return x.logsumexp(-1)
    least = np.finfo(x.dtype).min
    most = np.maximum(np.maximum.reduce(x, -1, keepdims=True, initial=least), least)
    with np.errstate(divide="ignore"):
        return (most + np.log(np.add.reduce(np.exp(x - most), -1, keepdims=True)))[..., 0]


def target_log_weight(targets: Leaf, log_weights: Leaf, words: Leaf) -> Leaf:
    """Compute the log of the total weight of each target among weighted words."""
    ops = ops_of(log_weights)
    return log_total(ops.where(words == targets[..., None], log_weights, -math.inf))


@dataclass
class CacheState(State):
    """State of the model and the recent positions stored in its cache."""

    child: State | None
    recent: RecentPositions


class CacheInterpolation(InferenceModel):
    """Interpolation with a cache: p(w) = (1 - lambda) p_model(w) + lambda p_cache(w).

    p_cache(w | x_1 .. x_t) is proportional to sum_i 1[w = x_{i+1}] exp(theta h_t . h_i) over the
    last N positions i < t, with h the features that the model's head reads: equations (2) and (3)
    of Grave, Joulin and Usunier (2017), "Improving neural language models with a continuous
    cache". Before the second token of a text the cache is empty, and the model is alone.

    Attributes:
        inner: the model, which stays as it is; it has `hidden` and `logits`.
        cache: N, lambda and theta.
        flatnesses: F of them that `score` keeps apart, see there; None for one mixed result.
    """

    inner: Any
    cache: CacheConfig
    flatnesses: Sequence[float] | None

    def put_beside(
        self, inner: Any, cache: CacheConfig, flatnesses: Sequence[float] | None = None
    ) -> None:
        """Set the model and the settings of its cache."""
        self.inner, self.cache, self.config = inner, cache, inner.config
        self.flatnesses = flatnesses
        self.window, self.rows_at_least = inner.window, inner.rows_at_least

    @property
    def parts(self) -> Sequence[InferenceModel]:
        return [self.inner]

    def parameter_count(self) -> int:
        """Count the parameters of the model."""
        return self.inner.parameter_count()

    def start(self, batch: int, stride: int | None = None) -> CacheState:
        return CacheState(self.inner.start(batch, stride), self._empty(batch))

    def _empty(self, batch: int) -> RecentPositions:
        return RecentPositions.empty(batch, self.inner.like)

    def interpolated(
        self, tokens: Leaf, state: CacheState | None = None, last: int | None = None
    ) -> tuple[Leaf, CacheState | None]:
        """Compute log-probabilities (B, T, V) of model and cache, and the new state."""
        logits, recalled, state = self.read(tokens, state, last)
        return CachedPredictions(logits, recalled, self.cache).log_distributions, state

    def predictions(self, tokens: Leaf, state: CacheState) -> tuple[Predictions, CacheState]:
        logits, recalled, state = self.read(tokens, state)
        return CachedPredictions(logits, recalled, self.cache), state

    def read(
        self, tokens: Leaf, state: CacheState | None, last: int | None = None
    ) -> tuple[Leaf, CacheHits, CacheState | None]:
        """Run the model and query its cache; return logits, cache hits and new state."""
        past = state or CacheState(None, self._empty(len(tokens)))
        features, child = self.inner.hidden(tokens, past.child)  # (B, T, H)
        logits = self.inner.logits(features, tokens, past.child, last)
        recent = past.recent.extended(features, tokens)
        # A position's word is the one read after it; that of the newest is yet to come.
        there = recent.tokens[:, :-1] >= 0
        words = ops_of(features).where(there, recent.tokens[:, 1:], NOTHING)
        queries = features if last is None else features[:, -last:]
        recalled = score_recent(queries, recent.features[:, :-1], words, self.cache.size)
        after = None if child is None else CacheState(child, recent.last(self.cache.size))
        return logits, recalled, after

    def score(
        self, tokens: Leaf, targets: Leaf, state: State, want: ScoreDetail = "log_probs"
    ) -> tuple[Scores, State]:
        """Score each target token; see `InferenceModel.score`.

        With `flatnesses`, what fitting needs in one pass, the log-probabilities are (B, T, 1 + F):
        the model's, then that of the cache at each flatness. An empty cache says what the model
        says, so that it never counts.
        """
        if self.flatnesses is None:
            return super().score(tokens, targets, state, want)
        length, pieces = max(1, self.most_at_once // len(tokens)), []
        ops = ops_of(tokens)
        for begin in range(0, tokens.shape[1], length):
            piece, words = (x[:, begin : begin + length] for x in (tokens, targets))
            logits, recalled, state = self.read(piece, state)
            model = FromLogits(logits).log_probs(words)
            empty = (recalled.scores == -math.inf).all(-1)
            each = [
                target_log_weight(words, log_weights(recalled.scores, flatness), recalled.words)
                for flatness in self.flatnesses
            ]
            each = [ops.where(empty, model, cached) for cached in each]
            pieces.append(ops.stack(-1, model, *each))
        return Scores(ops.along(1, *pieces)), state

    @property
    def most_at_once(self) -> int:
        pairs = PAIRS_AT_ONCE // (self.cache.size + FEWEST_TOGETHER)
        return min(self.inner.most_at_once, max(1, pairs))


class CachedPredictions(Predictions):
    """Predictions of a model interpolated with its cache.

    Args:
        logits: (B, T, V) of the model.
        recalled: what its cache finds.
        cache: how they are mixed.
    """

    def __init__(self, logits: Leaf, recalled: CacheHits, cache: CacheConfig) -> None:
        self.ops, self.model = ops_of(logits), FromLogits(logits)
        self.words, self.strength = recalled.words, cache.strength
        self.log_weights = log_weights(recalled.scores, cache.flatness)  # (B, T, W)
        filled = (recalled.scores > -math.inf).any(-1)
        self.log_rest = self.ops.like(filled, logits) * math.log1p(-self.strength)

    def log_probs(self, targets: Leaf) -> Leaf:
        of_model = self.model.log_probs(targets) + self.log_rest
        if not self.strength:
            return of_model
        cached = target_log_weight(targets, self.log_weights, self.words) + math.log(self.strength)
        return self.ops.log_of_sum(of_model, self.ops.like(cached, of_model))

    @cached_property
    def log_distributions(self) -> Leaf:
        """Log-probabilities (B, T, V) of all tokens."""
        places = self.ops.count(self.words, math.prod(self.log_rest.shape))
        return self.rows(places).reshape(self.model.logits.shape)

    def rows(self, places: Leaf) -> Leaf:
        weights, words = (
            x.reshape(-1, x.shape[-1])[places] for x in (self.log_weights, self.words)
        )
        log_probs = self.model.rows(places) + self.log_rest.reshape(-1, 1)[places]
        return add_word_weights(log_probs, self.strength * self.ops.exp(weights), words)

    def best(self) -> Leaf:
        return first_best(self.log_distributions)

    def ranks(self, targets: Leaf) -> Leaf:
        return ranks_in(self.log_distributions, targets)


def log_weights(scores: Leaf, flatness: float) -> Leaf:
    """Compute the log-softmax of theta times scores (..., W); -inf in rows without hits."""
    ops, seen = ops_of(scores), scores > -math.inf
    scaled = flatness * ops.where(seen, scores, 0)  # 0 times -inf is no number
    scaled = ops.where(seen, scaled, -math.inf)
    return scaled - ops.where(seen.any(-1), log_total(scaled), 0)[..., None]
