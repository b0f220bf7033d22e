"""How a model's configuration refers to another model: by its name and its hash."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from seqgen.errors import SeqgenError
from seqgen.store.layout import CONFIG
from seqgen.store.model import StoredModel
from seqgen.store.places import models_folder

Others = Callable[[], Iterable[StoredModel]]


@dataclass(frozen=True)
class Reference:
    """How a model's configuration refers to another.

    Attributes:
        name: what the other was called.
        digest: its hash, see `StoredModel.digest`.
        path: where it is, if it is not in the models' folder; in the owner's folder relative.
    """

    name: str
    digest: str
    path: str | None = None

    @classmethod
    def read(cls, fact: Any, owner: StoredModel, role: str) -> Reference:
        """Return what stands in a configuration.

        Args:
            fact: stands there.
            owner: whose configuration it is.
            role: what the other is to it, for a message, such as "a part".

        Raises:
            SeqgenError: it is no reference.
        """
        names = cls.__dataclass_fields__
        if not isinstance(fact, dict) or not fact.keys() <= names.keys():
            fact = {}
        known = {key: value for key, value in fact.items() if isinstance(value, str)}
        if not {"name", "digest"} <= known.keys():
            raise SeqgenError(f"{owner.path / CONFIG} is damaged: {role} has no name or no hash")
        return cls(**known)

    @classmethod
    def to(cls, other: StoredModel) -> Reference:
        """Return a reference to a model where it is."""
        path = other.path.resolve()
        inside = path.parent == models_folder().resolve()
        return cls(other.name, other.digest, None if inside else str(path))

    def to_dict(self) -> dict[str, str]:
        """Return what stands in a configuration."""
        return {key: value for key, value in vars(self).items() if value is not None}

    def find(self, owner: StoredModel, others: Others, role: str, remedy: str) -> StoredModel:
        """Return the model that is meant.

        Args:
            owner: what refers to it.
            others: returns the models among which is one that was renamed.
            role: what it is to the owner, for a message, such as "is a mixture, and its part".
            remedy: what to do if there is none, as the end of that message.

        Raises:
            SeqgenError: it is gone, or has been trained again.
        """
        place = models_folder() / self.name if self.path is None else owner.path / self.path
        other = StoredModel(place)
        there = other.loadable
        if there and other.digest == self.digest:
            return other
        renamed = next((other for other in others() if _is(other, self.digest)), None)
        if renamed is not None:
            return renamed
        happened = "has changed since" if there else "is gone"
        raise SeqgenError(f"{owner.name} {role} {self.name} {happened}: {remedy}")


def _is(model: StoredModel, digest: str) -> bool:
    try:
        return not model.is_mixture and model.digest == digest
    except (SeqgenError, OSError):
        return False
