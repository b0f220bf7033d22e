"""Several stored models used as one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from seqgen.files import regular
from seqgen.store.model import StoredModel
from seqgen.store.places import models_folder


@dataclass(frozen=True)
class StoredMixture(StoredModel):
    """Several models used as one; `path` is the first one's folder.

    Attributes:
        parts: the models.
        weights: theirs, which sum to 1.
        by_order: for each number of tokens that the n-gram part may match of a context, the
            weights there; empty where the weights are the same in every context.
    """

    parts: tuple[StoredModel, ...]
    weights: tuple[float, ...]
    by_order: tuple[tuple[float, ...], ...] = ()

    @property
    def name(self) -> str:
        """The value of `-m` that means this mixture."""
        pairs = zip(self.parts, self.weights, strict=True)
        return "+".join(f"{as_given(part)}:{weight:.6g}" for part, weight in pairs)

    @property
    def is_adapter(self) -> bool:
        """Whether it holds low-rank adapters: no, even if a part of it does."""
        return False

    @property
    def size(self) -> int:
        """Bytes on disk of all parts."""
        return sum(part.size for part in self.parts)

    @cached_property
    def digest(self) -> str:
        """A hash of the parts and their weights."""
        pairs = zip(self.parts, self.weights, strict=True)
        decisive = [[part.digest, weight] for part, weight in pairs]
        if self.by_order:
            decisive.append(self.by_order)
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()

    @property
    def validation_text(self) -> Path | None:
        """The held-out text, if it is the same for all: no model may have been trained on it."""
        paths = [part.validation_text for part in self.parts]
        if None in paths or len({regular(path).read_bytes() for path in paths}) > 1:
            return None
        return paths[0]

    @property
    def validation_pairs(self) -> tuple[Path, Path] | None:
        """The held-out pairs, if they are the same for all."""
        pairs = [part.validation_pairs for part in self.parts]
        if None in pairs:
            return None
        texts = {tuple(regular(path).read_bytes() for path in both) for both in pairs}
        return pairs[0] if len(texts) == 1 else None

    def with_weights(self, weights: Sequence[float]) -> StoredMixture:
        """Return the same parts with other weights, which are the same in every context."""
        return StoredMixture(self.parts[0].path, self.parts, tuple(weights))


@dataclass(frozen=True)
class SavedMixture(StoredMixture):
    """A mixture with a folder of its own, which is its `path` and gives it its name."""

    @property
    def name(self) -> str:
        """Its folder's name."""
        return StoredModel(self.path).name

    @cached_property
    def digest(self) -> str:
        """A hash of the parts, as they were when they were mixed, and of their weights."""
        return StoredModel(self.path).digest


def as_given(model: StoredModel) -> str:
    """Return the value of `-m` that means a model in every working directory."""
    inside = model.path.parent == models_folder()
    return model.path.name if inside else str(model.path)
