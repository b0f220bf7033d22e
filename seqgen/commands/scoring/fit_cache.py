"""Finding how strong and how flat a continuous cache should be, on held-out text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqgen.configs.cache import CacheConfig
from seqgen.models.base import LanguageModel, NeuralLanguageModel
from seqgen.models.memory.continuous_cache import SeveralCaches
from seqgen.models.mixture.model import fit_weights

# Flatnesses that are tried first, half an order of magnitude apart, and then around the best.
COARSE = (0.0, *(10 ** (power / 2) for power in range(-6, 3)))
FINE = tuple(10 ** (power / 8) for power in (-3, -2, -1, 1, 2, 3))
# So that what is printed and what was measured are the same: digits, and the greatest strength.
DIGITS, MOST = 4, 0.9999
LEAST = 1e-300
# Decimals that are kept of the greatest weight, which is what the others leave of 1.
EXACT = 12

# A model -> what `score` gives for each token of a text: (N,), or (N, 1 + F) of `SeveralCaches`.
Columns = Callable[[LanguageModel], Tensor]


@dataclass(frozen=True)
class FittedCache:
    """A mixture of models and their caches.

    Attributes:
        weights: of the parts, K; [1.0] of a model alone.
        cache: N, lambda and theta.
        nats: per token, of the whole.
        model_log_probs: (N, K), the log-probabilities of the tokens under each part.
        rounds: of EM.
    """

    weights: list[float]
    cache: CacheConfig
    nats: float
    model_log_probs: Tensor
    rounds: int


def fit_cache(parts: Sequence[LanguageModel], size: int, columns: Columns) -> FittedCache:
    """Find the strength, the flatness and the weights under which a text is most probable.

    For each flatness EM finds the rest, and all caches share one strength; flatnesses are tried
    on a grid.

    Args:
        parts: the components of a mixture, or one model; some may have no features.
        size: positions in the cache.
        columns: scores the text.
    """
    has = torch.tensor([isinstance(part, NeuralLanguageModel) for part in parts])
    counted = {part: columns(part) for part in parts if not isinstance(part, NeuralLanguageModel)}

    def tried(flatnesses: Sequence[float]) -> list[FittedCache]:
        several = [CacheConfig(size), tuple(float(f"{x:.4g}") for x in flatnesses)]
        each = [
            columns(SeveralCaches(part, *several).eval()) if cached else counted[part]
            for part, cached in zip(parts, has.tolist(), strict=True)
        ]
        model_log_probs = torch.stack([x[:, 0] if x.ndim > 1 else x for x in each], 1)  # (N, K)
        caches = torch.stack([x[:, 1:] for x in each if x.ndim > 1], 1)  # (N, J, F)
        return [
            _fit_weights(model_log_probs, caches[..., i], has, CacheConfig(size, flatness=flatness))
            for i, flatness in enumerate(several[1])
        ]

    candidates = tried(COARSE)
    best = min(candidates, key=lambda one: one.nats)
    if around := [best.cache.flatness * factor for factor in FINE if best.cache.flatness]:
        candidates = tried(around)
    return min(best, *candidates, key=lambda one: one.nats)


def _fit_weights(
    model_log_probs: Tensor, cached: Tensor, has: Tensor, cache: CacheConfig
) -> FittedCache:
    """Fit the weights of parts (N, K), and one strength for all of their caches (N, J), by EM.

    What is returned is rounded, so that what is printed is what was measured.
    """
    columns, count = torch.cat([model_log_probs, cached], 1), model_log_probs.shape[1]

    def tied(shares: Tensor) -> Tensor:
        """Return shares in which every cache has the same part of its model's."""
        weights, strength = _parted(shares, count, has)
        return _all_weights(weights, strength, has)

    shares, history = fit_weights(columns, tied=tied)
    weights, strength = _parted(torch.tensor(shares, dtype=torch.float64), count, has)
    weights = rounded(weights.tolist(), columns.shape[0])
    strength = min(round(strength.item(), DIGITS), MOST)
    shares = _all_weights(torch.tensor(weights, dtype=torch.float64), strength, has)
    nats = -(columns + shares.log()).logsumexp(1).mean().item()
    cache = replace(cache, strength=strength)
    return FittedCache(weights, cache, nats, model_log_probs, len(history) - 1)


def _parted(shares: Tensor, count: int, has: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights (K,) of parts with their caches, and the strength of all caches."""
    weights, caches = shares[:count].clone(), shares[count:]
    weights[has] += caches
    return weights, caches.sum() / weights[has].sum().clamp(min=LEAST)


def _all_weights(weights: Tensor, strength: Tensor | float, has: Tensor) -> Tensor:
    """Return the shares (K + J,) of parts without their caches, and of the caches."""
    models = torch.where(has, weights * (1 - strength), weights)
    return torch.cat([models, weights[has] * strength])


def rounded(weights: Sequence[float], tokens: int) -> list[float]:
    """Return weights with four decimals that sum to 1; small ones have four significant digits.

    No weight that the text needs becomes 0. EM gives a part the mean of its shares of the tokens.
    Where only K parts give a token any probability, their shares of it sum to 1, so that one of
    them has a weight of 1 / (K * tokens) or more. Half of that allows for rounding. Leaving out
    parts that have less costs less than the logarithm of 2, over all tokens.

    Args:
        weights: fitted by EM.
        tokens: how many they were fitted to.
    """
    least = 0.5 / (len(weights) * tokens)
    kept = [
        round(weight, DIGITS) or (float(f"{weight:.{DIGITS}g}") if weight >= least else 0.0)
        for weight in weights
    ]
    greatest = kept.index(max(kept))
    kept[greatest] = round(1 - (sum(kept) - kept[greatest]), EXACT)
    return kept
