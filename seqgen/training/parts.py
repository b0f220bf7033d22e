"""What lasts from one step of training to the next, and so is part of a checkpoint."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from seqgen.models.base import LanguageModel, load_weights, weights_of


class Part(Protocol):
    """Something whose state is tensors by name."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the state."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned."""


class Weights:
    """A model's weights as a `Part`."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def tensors(self) -> dict[str, Tensor]:
        """Return each weight once."""
        return weights_of(self._model)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned.

        Raises:
            RuntimeError: they do not fit the model.
        """
        load_weights(self._model, tensors)
