"""Maximum-likelihood fit of a mixture gate by Newton's method."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from seqgen.engines.ops import ArrayOps, Leaf, ops_of
from seqgen.models.mixture.equations import Mixed, MixtureState
from seqgen.models.mixture.gate import LEAST, find_order_guide, mean_cross_log_probs
from seqgen.models.scores import ScoreDetail, Scores

# Half of this times the squared distance from what is believed beforehand is added to the nats of
# the whole text, so that coefficients that few tokens determine stay where they are.
PRIOR = 3.0
# Newton's method stops when a round would gain less than so many nats a token, or after so many.
TOLERANCE, ROUNDS = 1e-7, 50
# A step is halved until it gains this part of what its slope promises, and given up below the last.
SUFFICIENT, SHORTEST = 1e-4, 1e-3
# Numbers in float64 at a time, 2 MB, which a core's cache holds; significant digits that are kept.
AT_ONCE, DIGITS = 1 << 18, 6


class DistributionSampler:
    """Mixture whose `score` gives every part's log-probabilities and stores distributions.

    Args:
        inner: the mixture of K parts.
        every: keep those before every so many tokens that are read.

    Attributes:
        kept: pieces (M, K, V) of them, in float32.
    """

    def __init__(self, inner: Mixed, every: int = 1) -> None:
        self.inner, self.every, self.read = inner, every, 0
        self.guide, _ = find_order_guide(inner.components)
        self.kept: list[np.ndarray] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def score(
        self, tokens: Leaf, targets: Leaf, state: MixtureState, want: ScoreDetail = "log_probs"
    ) -> tuple[Scores, MixtureState]:
        """Return the K log-probabilities, order and row number of each target, and the new state.

        After the K log-probabilities come the order matched, 0 if no part reports it, and the
        number of the distribution that was kept, or -1.
        """
        ops = ops_of(tokens)
        matched = ops.zeros(tokens, *tokens.shape)
        if self.guide is not None:
            matched = self.inner.components[self.guide].matched(tokens, state.children[self.guide])
        each, state = self.inner.distributions(tokens, state)
        each = np.stack([ops.array(x).astype(np.float32) for x in each], -2)  # (B, T, K, V)
        chosen = np.take_along_axis(each, ops.array(targets)[..., None, None], -1)[..., 0]
        places = self.read + np.arange(tokens.shape[0] * tokens.shape[1])
        is_kept = places % self.every == 0
        self.kept.append(each.reshape(-1, *each.shape[2:])[is_kept])
        self.read += places.size
        numbers = np.where(is_kept, places // self.every, -1).reshape(tokens.shape)
        others = np.stack([ops.array(matched), numbers], -1)
        return Scores(np.concatenate([chosen, others], -1)), state


class GateData:
    """Training data of a gate: distributions of K parts, and the token that followed.

    Args:
        log_probs: (M, K, V), in nats.
        tokens: (M,), those that followed.
        matched: (M,) of int64, the order matched before each; 0 if no part reports it.
        orders: how many orders N the parts tell apart.
    """

    def __init__(
        self, log_probs: np.ndarray, tokens: np.ndarray, matched: np.ndarray, orders: int
    ) -> None:
        self.log_probs, self.tokens = log_probs, tokens
        self.matched, self.orders = matched, orders

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, where: slice) -> GateData:
        """Slice the data."""
        some = (each[where] for each in (self.log_probs, self.tokens, self.matched))
        return GateData(*some, self.orders)

    def of_one_order(self) -> GateData:
        """Return the data with every matched order set to 0."""
        return GateData(self.log_probs, self.tokens, np.zeros_like(self.matched), 1)

    def pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the gate's input features and the parts' log-probabilities in chunks.

        These are (M, N + K^2), the order as one of N and the means; log-probabilities (M, K, V);
        and those of the tokens (M, K).
        """
        length, orders = max(1, AT_ONCE // math.prod(self.log_probs.shape[1:])), np.eye(self.orders)
        for at in range(0, len(self), length):
            piece = slice(at, at + length)
            each = np.maximum(self.log_probs[piece].astype(np.float64), LEAST)
            chosen = np.take_along_axis(each, self.tokens[piece, None, None], -1)[..., 0]
            features = np.concatenate([orders[self.matched[piece]], mean_cross_log_probs(each)], 1)
            yield features, each, chosen

    def nats(self, table: np.ndarray) -> float:
        """Compute the negative log-likelihood of all tokens under a gate's table (N + K^2, K)."""
        total = 0.0
        for features, each, chosen in self.pieces():
            exponents = features @ table  # (M, K)
            logits = (exponents[:, None] @ each)[:, 0]  # (M, V)
            total += ArrayOps.logsumexp(logits).sum() - (exponents * chosen).sum()
        return float(total)

    def derivatives(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute the gradient (N + K^2, K) and the Hessian of `nats`."""
        first, second = np.zeros_like(table), np.zeros(table.shape * 2)
        for features, each, chosen in self.pieces():
            logits = ((features @ table)[:, None] @ each)[:, 0]
            probs = np.exp(logits - logits.max(-1, keepdims=True))
            probs /= probs.sum(-1, keepdims=True)
            weighted = each * probs[:, None]  # (M, K, V)
            mean = weighted.sum(-1)
            covariance = weighted @ each.swapaxes(1, 2) - mean[:, :, None] * mean[:, None]
            first += features.T @ (mean - chosen)
            for j, k in np.ndindex(covariance.shape[1:]):
                second[:, j, :, k] += features.T @ (covariance[:, j, k, None] * features)
        return first, second.reshape(table.size, table.size)


def fit_gate(contexts: GateData) -> list[list[float]]:
    """Fit the coefficients of a gate to a text by maximum likelihood.

    The nats are convex in the coefficients, so there is one minimum. Constants that are the same
    for all orders are fitted first; those for each order are drawn towards them.

    Args:
        contexts: of the text's tokens.

    Returns:
        The table of `Gate`.
    """
    parts = contexts.log_probs.shape[1]
    table = np.zeros((1 + parts**2, parts))
    table[0] = 1 / parts  # the geometric mean
    table = _minimum(contexts.of_one_order(), table)
    if contexts.orders > 1:
        constants = np.repeat(table[:1], contexts.orders, 0)
        table = _minimum(contexts, np.concatenate([constants, table[1:]]))
    return [[float(f"{value:.{DIGITS}g}") for value in row] for row in table.tolist()]


def _minimum(contexts: GateData, believed: np.ndarray) -> np.ndarray:
    """Minimize the penalized negative log-likelihood by Newton's method with line search."""

    def cost(table: np.ndarray) -> float:
        return contexts.nats(table) + PRIOR / 2 * float(((table - believed) ** 2).sum())

    table, now = believed, cost(believed)
    for _ in range(ROUNDS):
        slope, curvature = contexts.derivatives(table)
        slope += PRIOR * (table - believed)
        curvature += PRIOR * np.eye(table.size)
        step = np.linalg.solve(curvature, slope.ravel()).reshape(table.shape)
        promised, length = float((slope * step).sum()), 1.0
        if promised <= TOLERANCE * len(contexts):
            break
        while (new := cost(table - length * step)) > now - SUFFICIENT * length * promised:
            length /= 2
            if length < SHORTEST:
                return table
        table, now = table - length * step, new
    return table
