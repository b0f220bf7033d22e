"""Continuous cache around a torch module; see `continuous_cache.py`."""

from __future__ import annotations

from collections.abc import Sequence

from seqgen.models.base import LanguageModel, NeuralLanguageModel
from seqgen.plugins.cache.continuous_cache import CacheInterpolation
from seqgen.settings.scoring import CacheConfig


class CachedModel(CacheInterpolation, LanguageModel):
    """Torch language model interpolated with a continuous cache; see `CacheInterpolation`."""

    forward = CacheInterpolation.interpolated

    def __init__(
        self,
        inner: NeuralLanguageModel,
        cache: CacheConfig,
        flatnesses: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.put_beside(inner, cache, flatnesses)
        self.train(inner.training)
