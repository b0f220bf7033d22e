"""A model that reads both ways, as the two language models that it consists of."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from seqgen import registry, store
from seqgen.commands.loaded import LoadedModel
from seqgen.commands.loading import Work, load, load_any, require_int8
from seqgen.configs import Direction
from seqgen.configs.scoring import CacheConfig
from seqgen.store import StoredMixture, StoredModel

if TYPE_CHECKING:
    from seqgen.models.engines.precision import Precision


@dataclass(frozen=True)
class StoredDirection(StoredModel):
    """One direction of a stored model that reads both ways; `path` is the folder of both.

    Attributes:
        direction: which one.
    """

    direction: Direction

    @property
    def name(self) -> str:
        """The model's name and the direction."""
        return f"{StoredModel(self.path).name}:{self.direction}"

    @cached_property
    def digest(self) -> str:
        """A hash of the model and the direction."""
        whole = f"{StoredModel(self.path).digest} {self.direction}"
        return hashlib.sha256(whole.encode()).hexdigest()


def directions_of(loaded: LoadedModel) -> list[LoadedModel]:
    """Return the language model that reads from the left, and the one that reads from the right."""
    model = loaded.model
    return [
        replace(
            loaded,
            stored=StoredDirection(loaded.stored.path, direction),
            model=one,
            data=replace(loaded.data, direction=direction),
        )
        for direction, one in (("forward", model.forwards), ("backward", model.backwards))
    ]


def load_directions(
    name: str | Path | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    cache: CacheConfig | None = None,
    work: Work | None = None,
) -> list[LoadedModel]:
    """Load a language model for scoring; of one that reads both ways, both that it consists of.

    See `load`.
    """
    stored = store.find_all(name)
    row = registry.known_architecture(stored.config["architecture"])
    plain = cache is None and not isinstance(stored, StoredMixture) and row is not None
    kind = (row.load_arrays() or row.load_model()) if plain else None
    if kind is not None and kind.both_ways:
        loaded = load_any(stored, device, precision, work)
        if precision == "int8":
            require_int8(loaded)
        return directions_of(loaded)
    return [load(name, device, precision, cache, work)]
