"""A stored model that is a base, stored elsewhere, and low-rank adapters of its matrices.

Its `model.safetensors` holds the adapters alone, and the table `adapter` of its `config.json` the
base by name and hash, and the scale and rank of the adapters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError
from seqgen.store.layout import CONFIG
from seqgen.store.model import StoredModel
from seqgen.store.reference import Reference

if TYPE_CHECKING:
    from torch import Tensor

    from seqgen.models.base import LanguageModel

ROLE = "holds low-rank adapters, and their base"
REMEDY = "restore it, or train the adapters again on another with --init-from"


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
    def read(cls, stored: StoredModel) -> Adapter:
        """Return the table of a stored model.

        Raises:
            SeqgenError: it is damaged.
        """
        table = stored.config.get("adapter")
        table = table if isinstance(table, dict) else {}
        rank, alpha = table.get("rank"), table.get("alpha")
        if type(rank) is not int or type(alpha) is not float or not (rank > 0 and alpha > 0):
            raise SeqgenError(f"{stored.path / CONFIG} is damaged: adapter has no rank or no alpha")
        return cls(Reference.read(table.get("base"), stored, "the base"), rank, alpha)

    def to_dict(self) -> dict[str, Any]:
        """Return what stands in a configuration."""
        return {"base": self.base.to_dict(), "rank": self.rank, "alpha": self.alpha}

    @property
    def decisive(self) -> list[Any]:
        """What affects the model's output besides the adapters' tensors."""
        return [self.base.digest, self.rank, self.alpha]

    def find_base(self, stored: StoredModel) -> StoredModel:
        """Return the base of a stored model, also if it was renamed.

        Raises:
            SeqgenError: it is gone, or has been trained again.
        """
        from seqgen.store.finding import list_models

        return self.base.find(stored, list_models, ROLE, REMEDY)

    def merged(self, stored: StoredModel) -> dict[str, Tensor]:
        """Return the weights of base and adapters together, by name.

        Raises:
            ValueError: they do not fit.
            SeqgenError: the base is gone, or damaged.
        """
        from seqgen.models.low_rank import merged

        weights = self.find_base(stored).weights()
        return merged(weights, stored.own_tensors(), self.alpha, self.rank)

    def beside(
        self, stored: StoredModel, fill: Callable[[Callable[[], dict[str, Tensor]]], LanguageModel]
    ) -> LanguageModel:
        """Return the model with its base's weights, and adapters that can be trained further.

        Args:
            stored: the model.
            fill: builds it with the weights that its argument returns.

        Raises:
            SeqgenError: the base is gone, or damaged.
        """
        from seqgen.models.base import load_weights
        from seqgen.models.low_rank import adapt

        model = fill(self.find_base(stored).weights)
        adapt(model, self.rank, self.alpha)
        load_weights(model, stored.own_tensors())
        return model
