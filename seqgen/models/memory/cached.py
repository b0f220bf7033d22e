"""Torch modules beside a continuous cache; see `continuous_cache.py`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from seqgen.configs.scoring import CacheConfig
from seqgen.models.base import LanguageModel, NeuralLanguageModel
from seqgen.models.memory.continuous_cache import CacheState, OverCache, OverSeveralCaches


class Cached(OverCache, LanguageModel):
    """`OverCache` of a torch module."""

    def __init__(self, inner: NeuralLanguageModel, cache: CacheConfig) -> None:
        super().__init__()
        self.put_beside(inner, cache)
        self.train(inner.training)

    def forward(
        self, tokens: Tensor, state: CacheState | None = None, last: int | None = None
    ) -> tuple[Tensor, CacheState | None]:
        return self.interpolated(tokens, state, last)


class SeveralCaches(OverSeveralCaches, Cached):
    """`OverSeveralCaches` of a torch module."""

    def __init__(
        self, inner: NeuralLanguageModel, cache: CacheConfig, flatnesses: Sequence[float]
    ) -> None:
        super().__init__(inner, cache)
        self.flatnesses = flatnesses
