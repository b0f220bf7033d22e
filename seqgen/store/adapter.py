"""What `config.json` says of low-rank adapters, whose base is stored elsewhere.

The `model.safetensors` beside it holds the adapters alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError
from seqgen.store.reference import Reference


@dataclass(frozen=True)
class Adapter:
    """The table `adapter` of a configuration.

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
