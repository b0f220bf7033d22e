"""Continuous cache around an array model."""

from __future__ import annotations

from collections.abc import Sequence

from seqgen.models.arrays import ArrayModel, NeuralArrays
from seqgen.plugins.cache.continuous_cache import CacheInterpolation
from seqgen.settings.scoring import CacheConfig


class CachedArrays(CacheInterpolation, ArrayModel):
    """Array model interpolated with a continuous cache; see `CacheInterpolation`."""

    __call__ = CacheInterpolation.interpolated

    def __init__(
        self, inner: NeuralArrays, cache: CacheConfig, flatnesses: Sequence[float] | None = None
    ) -> None:
        self.put_beside(inner, cache, flatnesses)
        self.dtype = inner.dtype
