"""Fit the strength and flatness of caches, and the weights beside them, on held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from seqgen.models.inference import InferenceModel
from seqgen.models.mixture.fitting import fit_weights, mix_log_probs
from seqgen.plugins.cache.beside import mix_with_caches, with_cache
from seqgen.scoring.mixture_fitting import DIGITS, Columns, rounded, with_weights
from seqgen.settings.scoring import CacheConfig

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel

# Flatnesses that are tried first, half an order of magnitude apart, and then around the best.
COARSE = (0.0, *(10 ** (power / 2) for power in range(-6, 3)))
FINE = tuple(10 ** (power / 8) for power in (-3, -2, -1, 1, 2, 3))
# The greatest strength, with as many digits as are printed.
MOST = 0.9999
LEAST = 1e-300


@dataclass(frozen=True)
class FittedCache:
    """Fitted mixture of models and their caches.

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
    model_log_probs: np.ndarray
    rounds: int


def fit_cache(loaded: LoadedModel, columns: Columns) -> tuple[LoadedModel, FittedCache]:
    """Fit a model's cache, or a mixture's weights and caches; return the model and what was fitted.

    Args:
        loaded: the model, with its cache.
        columns: scores the text.
    """
    fitted = fit_strength(loaded.model.parts, loaded.cache.size, columns)
    return with_cache(with_weights(loaded, fitted.weights), fitted.cache), fitted


def fit_strength(parts: Sequence[InferenceModel], size: int, columns: Columns) -> FittedCache:
    """Fit cache strength, flatness and model weights that maximise a text's probability.

    For each flatness EM finds the rest, and all caches share one strength; flatnesses are tried
    on a grid.

    Args:
        parts: the components of a mixture, or one model; some may have no features.
        size: positions in the cache.
        columns: scores the text.
    """
    has = np.array([mix_with_caches(part, CacheConfig(size)) is not None for part in parts])
    fixed_columns = [
        None if cached else columns(part) for part, cached in zip(parts, has, strict=True)
    ]

    def tried(flatnesses: Sequence[float]) -> list[FittedCache]:
        rounded_flatnesses = tuple(float(f"{x:.4g}") for x in flatnesses)
        each = [
            columns(mix_with_caches(part, CacheConfig(size), rounded_flatnesses))
            if fixed is None
            else fixed
            for part, fixed in zip(parts, fixed_columns, strict=True)
        ]
        model_log_probs = np.stack([x[:, 0] if x.ndim > 1 else x for x in each], 1)  # (N, K)
        caches = np.stack([x[:, 1:] for x in each if x.ndim > 1], 1)  # (N, J, F)
        return [
            _fit_weights(model_log_probs, caches[..., i], has, CacheConfig(size, flatness=flatness))
            for i, flatness in enumerate(rounded_flatnesses)
        ]

    candidates = tried(COARSE)
    best = min(candidates, key=lambda one: one.nats)
    if around := [best.cache.flatness * factor for factor in FINE if best.cache.flatness]:
        candidates = tried(around)
    return min(best, *candidates, key=lambda one: one.nats)


def _fit_weights(
    model_log_probs: np.ndarray, cached: np.ndarray, has: np.ndarray, cache: CacheConfig
) -> FittedCache:
    """Fit model weights (N, K) and one strength of all caches (N, J) by EM.

    What is returned is rounded, so that what is printed is what was measured.
    """
    columns, count = np.concatenate([model_log_probs, cached], 1), model_log_probs.shape[1]

    def tied(shares: np.ndarray) -> np.ndarray:
        """Return shares in which every cache has the same part of its model's."""
        weights, strength = _split_shares(shares, count, has)
        return _join_shares(weights, strength, has)

    shares, history = fit_weights(columns, tied=tied)
    weights, strength = _split_shares(np.array(shares), count, has)
    weights = rounded(weights.tolist(), columns.shape[0])
    strength = min(round(strength, DIGITS), MOST)
    shares = _join_shares(np.array(weights), strength, has)
    nats = -float(mix_log_probs(columns, shares).mean())
    cache = replace(cache, strength=strength)
    return FittedCache(weights, cache, nats, model_log_probs, len(history) - 1)


def _split_shares(shares: np.ndarray, count: int, has: np.ndarray) -> tuple[np.ndarray, float]:
    """Split shares of components into model weights (K,) and cache strength."""
    weights, caches = shares[:count].copy(), shares[count:]
    weights[has] += caches
    return weights, float(caches.sum() / max(weights[has].sum(), LEAST))


def _join_shares(weights: np.ndarray, strength: float, has: np.ndarray) -> np.ndarray:
    """Combine model weights and cache strength into shares (K + J,) of all components."""
    models = np.where(has, weights * (1 - strength), weights)
    return np.concatenate([models, weights[has] * strength])
