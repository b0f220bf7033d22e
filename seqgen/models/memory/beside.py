"""Models beside continuous caches, by whichever engine runs them."""

from __future__ import annotations

from collections.abc import Sequence

from seqgen.configs.scoring import CacheConfig
from seqgen.models.memory.continuous_cache import CachedArrays, SeveralCachesArrays
from seqgen.models.reader import ArrayModel, NeuralArrays, Reader


def beside_caches(
    model: Reader, cache: CacheConfig, flatnesses: Sequence[float] | None = None
) -> Reader | None:
    """Return a model with a cache beside it, or with several; None if it has no features."""
    if isinstance(model, NeuralArrays):
        kind = CachedArrays if flatnesses is None else SeveralCachesArrays
    elif isinstance(model, ArrayModel):
        return None
    else:
        from seqgen.models.base import NeuralLanguageModel
        from seqgen.models.memory.cached import Cached, SeveralCaches

        if not isinstance(model, NeuralLanguageModel):
            return None
        kind = Cached if flatnesses is None else SeveralCaches
    return kind(model, cache, *([] if flatnesses is None else [tuple(flatnesses)]))
