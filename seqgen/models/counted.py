"""Torch wrapper of models estimated from counts or by EM, computed by an array model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from seqgen.engines.ops import ops_of
from seqgen.models.arrays import ArrayModel
from seqgen.models.base import LanguageModel
from seqgen.models.scores import Predictions, ScoreDetail, Scores
from seqgen.models.state import State

if TYPE_CHECKING:
    from seqgen.text.corpus import GrowingArray


class CountedModel(LanguageModel):
    """Language model whose parameters are tables of probabilities, computed by an array model.

    The tables stay in the CPU's memory, where its array model reads them. On another device the
    model takes tokens from there and returns tensors there.

    Attributes:
        array_model: its class, made from the configuration and the tables by name.
    """

    counted = True
    array_model: ClassVar[type[ArrayModel]]

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("place", torch.empty(0), persistent=False)
        self._arrays: ArrayModel | None = None
        self.columns: dict[
            str, GrowingArray
        ] = {}  # those of the tables that lie in temporary files

    @property
    def device(self) -> torch.device:
        return self.place.device

    def _apply(self, fn: Any, recurse: bool = True) -> CountedModel:
        self.place = fn(self.place)
        for name, table in self.state_dict().items():
            kind = fn(table.new_empty(0)).dtype
            # Probabilities are never in less than float32.
            wide = torch.promote_types(kind, torch.float32) if kind.is_floating_point else kind
            self.take_tables({name: table.to(wide)})
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._arrays = None
        super()._load_from_state_dict(*args, **kwargs)

    def parameter_count(self) -> int:
        """Count the numbers in the tables."""
        return sum(t.numel() for t in self.buffers() if t.is_floating_point())

    @property
    def arrays(self) -> ArrayModel:
        """Array model that shares memory with the tables.

        Raises:
            ValueError: they do not fit each other.
        """
        if self._arrays is None:
            tables = {name: table.numpy() for name, table in self.state_dict().items()}
            self._arrays = self.array_model(self.config, tables)
        return self._arrays

    def __getstate__(self) -> dict[str, Any]:
        # Views of the tables can be neither copied nor pickled.
        return {**self.__dict__, "_arrays": None, "columns": {}}

    def take_tables(self, tables: Mapping[str, Tensor]) -> None:
        """Replace the model's parameter tables by those given by name."""
        self._arrays = None
        for name, table in tables.items():
            self.register_buffer(name, table)
            self.columns.pop(name, None)

    def start(self, batch: int, stride: int | None = None) -> State:
        return self._tensors(self.arrays.start(batch, stride))

    def forward(
        self, tokens: Tensor, state: State | None = None, last: int | None = None
    ) -> tuple[Tensor, State | None]:
        logits, state = self.arrays(_array(tokens), state and state.as_arrays(), last)
        return self._tensor(logits), self._tensors(state)

    def step(self, tokens: Sequence[int], state: State) -> tuple[np.ndarray, State]:
        return self.arrays.step(tokens, state.as_arrays())

    def predictions(self, tokens: Tensor, state: State) -> tuple[Predictions, State]:
        log_probs, state = self.arrays.predictions(_array(tokens), state.as_arrays())
        return _OverTensors(log_probs, self._tensor), self._tensors(state)

    @property
    def most_at_once(self) -> int:
        return self.arrays.most_at_once

    @property
    def quick_ranks(self) -> bool:
        return self.arrays.quick_ranks

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _tensors(self, state: State | None) -> State | None:
        return state and state.map(self._tensor)


class _OverTensors(Predictions):
    """Predictions of an array model, with tensors as arguments and results."""

    def __init__(self, inner: Predictions, tensor: Any) -> None:
        self.inner, self.tensor = inner, tensor

    def log_probs(self, targets: Tensor) -> Tensor:
        return self.tensor(self.inner.log_probs(_array(targets)))

    def best(self) -> Tensor:
        return self.tensor(self.inner.best())

    def rows(self, places: Tensor) -> Tensor:
        return self.tensor(self.inner.rows(_array(places)))

    def ranks(self, targets: Tensor) -> Tensor:
        return self.tensor(self.inner.ranks(_array(targets)))

    def score(self, targets: Tensor, want: ScoreDetail) -> Scores:
        return self.inner.score(_array(targets), want).map(self.tensor)


def _array(x: Any) -> np.ndarray:
    return ops_of(x).array(x)
