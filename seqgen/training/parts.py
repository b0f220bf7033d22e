"""What lasts from one step of training to the next, and so is part of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seqgen.models.base import LanguageModel, load_weights, weights_of
from seqgen.models.state import State


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


class CarriedState:
    """The state that goes on from one training window to the next, as a `Part`.

    Attributes:
        state: after the last batch; None before the first, and where none is carried.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.state: State | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Return the state's tensors by the names of its fields."""
        return {} if self.state is None else self.state.detach().named()

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned, or what version 0.1.0 stored: by number, in order.

        Raises:
            KeyError: it is of another model.
        """
        if not tensors:
            self.state = None
            return
        start = self._model.start(1)
        if "0" in tensors:
            names = {str(number): name for number, name in enumerate(start.named())}
            tensors = {names.get(number, number): t for number, t in tensors.items()}
        device = self._model.device
        self.state = start.with_tensors({name: t.to(device) for name, t in tensors.items()})


class RandomStates:
    """PyTorch's own random states, of the CPU and of the device, as a `Part`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def tensors(self) -> dict[str, Tensor]:
        """Return the states."""
        states = {"cpu": torch.get_rng_state()}
        if self._device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self._device)
        return states

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned, perhaps on another device.

        Raises:
            KeyError: they are missing.
        """
        torch.set_rng_state(tensors["cpu"])
        if "cuda" in tensors and self._device.type == "cuda":
            torch.cuda.set_rng_state(tensors["cuda"], self._device)
