"""A model with a continuous cache beside it, for the engine that runs the model."""

from __future__ import annotations

from collections.abc import Sequence

from seqgen.configs.scoring import CacheConfig
from seqgen.models.memory.continuous_cache import CachedArrays
from seqgen.models.reader import ArrayModel, NeuralArrays, Reader


def beside_caches(
    model: Reader, cache: CacheConfig, flatnesses: Sequence[float] | None = None
) -> Reader | None:
    """Return a model with a cache beside it, or with several; None if it has no features."""
    if isinstance(model, ArrayModel):
        return CachedArrays(model, cache, flatnesses) if isinstance(model, NeuralArrays) else None
    from seqgen.models.base import NeuralLanguageModel
    from seqgen.models.memory.cached import Cached

    return Cached(model, cache, flatnesses) if isinstance(model, NeuralLanguageModel) else None
