"""Put continuous caches beside a loaded model, or beside the parts of a mixture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from seqgen.errors import SeqgenError
from seqgen.models.arrays import ArrayModel, NeuralArrays
from seqgen.models.inference import InferenceModel
from seqgen.settings.scoring import CacheConfig
from seqgen.store import StoredMixture
from seqgen.store.loading import mixture_of

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel


def with_cache(loaded: LoadedModel, cache: CacheConfig) -> LoadedModel:
    """Add a continuous cache to a model.

    In a mixture, each part that has features to look up gets one.

    Raises:
        UsageError: the model writes from sources.
        SeqgenError: it is estimated from counts.
    """
    loaded.conditioning.require_nothing("--cache")
    parts = loaded.model.parts
    cached = [mix_with_caches(part, cache) for part in parts]
    if not any(cached):
        raise SeqgenError(
            f"{loaded.stored.name} has no hidden vectors, which --cache compares; give a neural "
            "model, or a mixture with one"
        )
    model = cached[0]
    if isinstance(loaded.stored, StoredMixture):
        both = zip(cached, parts, strict=True)
        model = mixture_of([one or part for one, part in both], loaded.stored)
    return replace(loaded, model=model, cache=cache)


def mix_with_caches(
    model: InferenceModel, cache: CacheConfig, flatnesses: Sequence[float] | None = None
) -> InferenceModel | None:
    """Mix a model with one or several caches; None if it has no features."""
    if isinstance(model, ArrayModel):
        from seqgen.plugins.cache.arrays import CachedArrays

        return CachedArrays(model, cache, flatnesses) if isinstance(model, NeuralArrays) else None
    from seqgen.models.base import NeuralLanguageModel
    from seqgen.plugins.cache.model import CachedModel

    return CachedModel(model, cache, flatnesses) if isinstance(model, NeuralLanguageModel) else None
