"""What `config.json` of a model must hold, and how it refers to other models: by name and hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError
from seqgen.store.folder import ModelFolder
from seqgen.store.layout import CONFIG, FORMAT, PARTS


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


@dataclass(frozen=True)
class Adapter:
    """The table `adapter` of a configuration: of low-rank adapters, whose base is stored elsewhere.

    The `model.safetensors` beside it holds the adapters alone.

    Attributes:
        base: the model whose matrices have adapters.
        rank: r.
        alpha: the scale; see `models.low_rank`.
    """

    base: Reference
    rank: int
    alpha: float

    @classmethod
    def read(cls, config: Mapping[str, Any], file: Path) -> Adapter:
        """Return the table of the configuration in a file.

        Raises:
            SeqgenError: it is damaged.
        """
        table = config.get("adapter")
        table = table if isinstance(table, dict) else {}
        rank, alpha = table.get("rank"), table.get("alpha")
        if type(rank) is not int or type(alpha) is not float or not (rank > 0 and alpha > 0):
            raise SeqgenError(f"{file} is damaged: adapter has no rank or no alpha")
        return cls(Reference.read(table.get("base"), file, "the base"), rank, alpha)

    def to_dict(self) -> dict[str, Any]:
        """Return what stands in a configuration."""
        return {"base": self.base.to_dict(), "rank": self.rank, "alpha": self.alpha}

    @property
    def decisive(self) -> list[Any]:
        """What affects the model's output besides the adapters' tensors."""
        return [self.base.digest, self.rank, self.alpha]


def read_config(folder: ModelFolder) -> dict[str, Any]:
    """Return `config.json`: architecture, resolved configuration, versions.

    Raises:
        SeqgenError: it is missing, damaged, or of a later format.
    """
    config = folder.read_table(CONFIG)
    if config.get("format") != FORMAT:
        raise SeqgenError(
            f"{folder.path} has format {config.get('format')!r}, and this seqgen reads {FORMAT}"
        )
    tables = {"model": None, "data": None, "training": {}}
    tables = {name: config.get(name, missing) for name, missing in tables.items()}
    wrong = [name for name, table in tables.items() if not isinstance(table, dict)]
    if wrong:
        raise SeqgenError(f"{folder.path / CONFIG} is damaged: it has no table {wrong[0]!r}")
    if not isinstance(config.get("architecture"), str):
        raise SeqgenError(f"{folder.path / CONFIG} is damaged: it names no architecture")
    return config


def read_parts(config: Mapping[str, Any], file: Path) -> list[Reference]:
    """Return how the configuration of a mixture, in a file, refers to its parts, two or more.

    Raises:
        SeqgenError: it is damaged.
    """
    facts = config.get("parts")
    if not isinstance(facts, list) or len(facts) < 2:
        raise SeqgenError(f"{file} is damaged: it names no parts")
    return [Reference.read(fact, file, "a part") for fact in facts]
