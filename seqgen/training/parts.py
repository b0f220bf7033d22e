"""What lasts from one step of training to the next, and so is part of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seqgen.models.base import load_weights, weights_of


class Part(Protocol):
    """Something whose state is tensors by name."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the state."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned."""


class Weights:
    """A model's weights and buffers as a `Part`."""

    def __init__(self, model: nn.Module) -> None:
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


class OptimizerState:
    """What optimisers know of their parameters, as a `Part`."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self._optimizers = optimizers

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by optimiser, parameter and name."""
        return {
            f"{i}.{key}.{name}": torch.as_tensor(value)
            for i, optimizer in enumerate(self._optimizers)
            for key, state in optimizer.state_dict()["state"].items()
            for name, value in state.items()
            if value is not None  # SGD without momentum
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        states: list[dict[int, dict[str, Tensor]]] = [{} for _ in self._optimizers]
        for path, value in tensors.items():
            i, key, name = path.split(".", 2)
            states[int(i)].setdefault(int(key), {})[name] = value
        for optimizer, state in zip(self._optimizers, states, strict=True):
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})
