"""EM for mixture weights: one set for the whole text, or one per matched n-gram order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seqgen.engines.ops import Leaf, ops_of
from seqgen.models.inference import InferenceModel
from seqgen.models.scores import ScoreDetail, Scores
from seqgen.models.state import State

# Contexts of an order that has fewer held-out tokens get the weights of all contexts.
LEAST_TOKENS = 50


class OrderMatcher:
    """N-gram model whose `score` reports the order matched before each token."""

    def __init__(self, inner: InferenceModel) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def score(
        self, tokens: Leaf, targets: Leaf, state: State, want: ScoreDetail = "log_probs"
    ) -> tuple[Scores, State]:
        """Return the matched orders in the place of log-probabilities, and the new state."""
        matched = self.inner.matched(tokens, state)
        matched = ops_of(matched).array(matched).astype(np.float64)
        return Scores(matched), self.inner.predictions(tokens, state)[1]


def mix_log_probs(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mix the log-probabilities (N, K) of parts by weights (K,) or (N, K)."""
    with np.errstate(divide="ignore"):
        return np.logaddexp.reduce(log_probs + np.log(weights), axis=1)


def fit_weights(
    log_probs: np.ndarray,
    tolerance: float = 1e-7,
    rounds: int = 1000,
    tied: Callable[[np.ndarray], np.ndarray] = lambda weights: weights,
) -> tuple[list[float], list[float]]:
    """Fit mixture weights to held-out text by EM (Jelinek 1980).

    Each round gives every component the share of the text that it is likely to have written.
    The likelihood has one maximum and never falls.

    Args:
        log_probs: (N, K), of each token under each component, in nats.
        tolerance: stop when a round gains less than so many nats a token.
        rounds: stop after so many.
        tied: returns the most probable weights among those allowed, from the shares (K,) of the
            text that a round gave; all weights that sum to 1 are allowed if not given.

    Returns:
        The K weights, and the mean log-probability before every round and after the last.
    """
    log_probs = np.asarray(log_probs, np.float64)
    log_probs = log_probs[(log_probs > -np.inf).any(1)]
    tokens, parts = log_probs.shape
    best = log_probs.max(1, keepdims=True)
    likelihoods = np.exp(log_probs - best)  # (N, K), the largest of each token 1
    weights, history = tied(np.full(parts, 1 / parts)), []
    while True:
        mixed = likelihoods @ weights  # (N,)
        with np.errstate(divide="ignore"):
            history.append(float(np.log(mixed).mean() + best.mean()))
        gain = history[-1] - history[-2] if len(history) > 1 else math.inf
        if gain < tolerance or len(history) > rounds:
            return weights.tolist(), history
        weights = tied(weights * ((1 / mixed) @ likelihoods) / tokens)


def fit_by_order(
    log_probs: np.ndarray,
    matched: np.ndarray,
    orders: int,
    overall: Sequence[float],
    least: int = LEAST_TOKENS,
) -> list[list[float]]:
    """Fit mixture weights for each matched n-gram order to held-out text by EM.

    The text's likelihood is a product over the orders, so that each one's weights are fitted on
    the tokens after its contexts alone.

    Args:
        log_probs: (N, K), of each token under each component, in nats.
        matched: (N,) of int64, the order matched before each token, 0 to `orders` - 1.
        orders: how many there are.
        overall: K weights for orders with too few tokens.
        least: so many tokens are enough.

    Returns:
        K weights for each order.
    """
    table = []
    for order in range(orders):
        of_order = log_probs[matched == order]
        enough = np.count_nonzero((of_order > -np.inf).any(1)) >= least
        table.append(fit_weights(of_order)[0] if enough else list(overall))
    return table
