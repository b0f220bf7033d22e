"""Checkpoint parts: training state that lasts from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seqgen import ranks
from seqgen.models.base import load_weights, weights_of
from seqgen.ranks.divided import divided_as, on_first
from seqgen.text.batches import portions, row_numbers

if TYPE_CHECKING:
    from seqgen.models.base import LanguageModel
    from seqgen.models.state import State


class CheckpointPart(Protocol):
    """Interface of training state that is saved as tensors by name."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the state as tensors by name."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from tensors by name."""


def require_like(name: str, tensor: Tensor, own: Tensor, stacked: bool = False) -> None:
    """Refuse a stored tensor that is not floating-point or does not have the parameter's shape.

    Args:
        name: of the tensor, for a message.
        tensor: what is stored; a single number fits any parameter.
        own: the parameter.
        stacked: there may be several of its shape.

    Raises:
        RuntimeError: says what is wrong.
    """
    shape = tensor.shape[-own.ndim or tensor.ndim :] if stacked else tensor.shape
    if not tensor.is_floating_point() or (tensor.ndim and shape != own.shape):
        described = f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
        raise RuntimeError(f"{name} is {described}, and its parameter is {tuple(own.shape)}")


class ModelWeights:
    """Checkpoint part: a model's weights and buffers."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def tensors(self) -> dict[str, Tensor]:
        """Return each weight once, by name."""
        return weights_of(self._model)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the weights.

        Raises:
            RuntimeError: they do not fit the model.
        """
        load_weights(self._model, tensors)


class OptimizerState:
    """Checkpoint part: the state of all optimizers."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self.optimizers = optimizers

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by optimizer, parameter and name."""
        states = {
            f"{i}.{key}.{name}": torch.as_tensor(value)
            for i, optimizer in enumerate(self.optimizers)
            for key, state in optimizer.state_dict()["state"].items()
            for name, value in state.items()
            if value is not None  # SGD without momentum
        }
        return on_first(states)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state of the optimizers.

        Raises:
            RuntimeError: it is of other parameters.
        """
        states: list[dict[int, dict[str, Tensor]]] = [{} for _ in self.optimizers]
        for path, value in tensors.items():
            i, key, name = path.split(".", 2)
            states[int(i)].setdefault(int(key), {})[name] = value
        for optimizer, state in zip(self.optimizers, states, strict=True):
            saved = optimizer.state_dict()["param_groups"]
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            numbers = [key for group in saved for key in group["params"]]
            for key, parameter in zip(numbers, parameters, strict=True):
                for name, tensor in state.get(key, {}).items():
                    require_like(name, tensor, parameter, stacked=True)
                    state[key][name] = divided_as(parameter, tensor)
            optimizer.load_state_dict({"state": state, "param_groups": saved})


class CarriedState:
    """Checkpoint part: the recurrent state carried from one training window to the next.

    Args:
        model: whose state it is.
        device: where it computes.
        pieces: how many a batch is computed in.

    Attributes:
        state: of this rank's rows after the last batch; None before the first, and where none is
            carried.
        rows: how many rows the batch had, on all ranks.
    """

    def __init__(self, model: LanguageModel, device: torch.device, pieces: int = 1) -> None:
        self._model, self._device, self._pieces = model, device, pieces
        self.state: State | None = None
        self.rows = 0

    def places(self) -> list[int]:
        """Indices of this rank's rows in the batch; see `places`."""
        return row_numbers(portions(self.rows, self._pieces, ranks.rank(), ranks.world_size()))

    def tensors(self) -> dict[str, Tensor]:
        """Gather the state tensors of all ranks' rows by field name."""
        if self.state is None:
            return {}
        named = self.state.detach().named()
        if ranks.world_size() == 1:
            return named
        everywhere = ranks.gathered(({n: t.cpu() for n, t in named.items()}, self.places()))
        numbers = torch.tensor([place for _, places in everywhere for place in places])
        order = numbers.argsort()[int((numbers < 0).sum()) :]
        return {name: torch.cat([each[name] for each, _ in everywhere])[order] for name in named}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state; also reads the numbered form of version 0.1.0.

        Each rank takes its own rows, however many ranks there were.

        Raises:
            KeyError, RuntimeError: it is of another model.
        """
        if not tensors:
            self.state = None
            return
        start = self._model.start(1)
        if "0" in tensors:
            names = {str(number): name for number, name in enumerate(start.named())}
            tensors = {names.get(number, number): t for number, t in tensors.items()}
        device = self._device
        self.rows = len(next(iter(tensors.values())))
        for name, initial in start.named().items():
            tensor, of_floats = tensors[name], initial.is_floating_point()
            fits = tensor.is_floating_point() == of_floats and tensor.ndim == initial.ndim
            fits = fits and len(tensor) == self.rows
            if not fits or (of_floats and tensor.shape[-1] != initial.shape[-1]):
                raise RuntimeError(f"the state's {name} has another type or shape")
        if ranks.world_size() > 1:
            places = [max(0, place) for place in self.places()]
            tensors = {name: tensor[places] for name, tensor in tensors.items()}
        self.state = start.with_tensors({name: t.to(device) for name, t in tensors.items()})


class RandomStates:
    """Checkpoint part: PyTorch's random states of the CPU and the device.

    Those of all ranks are alike, for all draw the same numbers (`engines.dropout.draw_for_rows`);
    where they are not, the others' are kept too, and serve a run of as many ranks.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def tensors(self) -> dict[str, Tensor]:
        """Return the random states."""
        states = {"cpu": torch.get_rng_state()}
        if self._device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self._device)
        if ranks.world_size() == 1:
            return states
        everywhere = ranks.gathered(states)
        of_others = {
            f"{name}.{rank}": state
            for rank, own in enumerate(everywhere)
            for name, state in own.items()
            if not torch.equal(state, everywhere[0][name])
        }
        return everywhere[0] | of_others

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the random states, also on another device.

        Raises:
            KeyError: they are missing.
        """

        def own(name: str) -> Tensor:
            return tensors.get(f"{name}.{ranks.rank()}", tensors[name])

        torch.set_rng_state(own("cpu"))
        if "cuda" in tensors and self._device.type == "cuda":
            torch.cuda.set_rng_state(own("cuda"), self._device)
