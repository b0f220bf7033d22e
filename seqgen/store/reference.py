"""How a model's configuration refers to another model: by its name and its hash."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError
from seqgen.store.layout import PARTS


@dataclass(frozen=True)
class Reference:
    """How a model's configuration refers to another; `StoredModel.referred` finds it.

    Attributes:
        name: what the other was called.
        digest: its hash, see `StoredModel.digest`.
        path: where it is, if it is not in the models' folder; in the owner's folder relative.
    """

    name: str
    digest: str
    path: str | None = None

    @classmethod
    def read(cls, fact: Any, file: Path, role: str) -> Reference:
        """Return what stands in a configuration.

        Args:
            fact: stands there.
            file: the configuration.
            role: what the other is to its owner, for a message, such as "a part".

        Raises:
            SeqgenError: it is no reference.
        """
        names = cls.__dataclass_fields__
        if not isinstance(fact, dict) or not fact.keys() <= names.keys():
            fact = {}
        known = {key: value for key, value in fact.items() if isinstance(value, str)}
        if not {"name", "digest"} <= known.keys():
            raise SeqgenError(f"{file} is damaged: {role} has no name or no hash")
        return cls(**known)

    @property
    def inside(self) -> bool:
        """Whether the other is a copy in its owner's folder."""
        return self.path is not None and self.path.startswith(f"{PARTS}/")

    def to_dict(self) -> dict[str, str]:
        """Return what stands in a configuration."""
        return {key: value for key, value in vars(self).items() if value is not None}
