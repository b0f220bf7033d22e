"""Observe recurrent layers step by step: states, gates and gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from seqgen.engines.tensor_ops import TensorOps
from seqgen.models.recurrent.cell import Cell, LayerState, Watch
from seqgen.models.recurrent.linear_maps import tensor_maps

# Takes the name of an activation, and its values.
SeesValues = Callable[[str, Tensor], None]


class WatchedOps(TensorOps):
    """Torch operations that report the values of every sigmoid, tanh and ReLU.

    Attributes:
        shown: what the equation has shown of its step, by name.
    """

    def __init__(self, sees: SeesValues) -> None:
        self._sees = sees
        self.shown: dict[str, Tensor] = {}

    def show(self, **values: Tensor) -> None:
        """Store values (B, H) by name."""
        self.shown |= {name: y.detach() for name, y in values.items()}

    def sigmoid(self, x: Tensor) -> Tensor:
        """Compute the sigmoid of x and report it."""
        return self._shown("sigmoid", torch.sigmoid(x))

    def tanh(self, x: Tensor) -> Tensor:
        """Compute the hyperbolic tangent of x and report it."""
        return self._shown("tanh", torch.tanh(x))

    def relu(self, x: Tensor) -> Tensor:
        """Compute max(x, 0) and report it."""
        return self._shown("relu", torch.relu(x))

    def gates(self, x: Tensor, *functions: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Cut x into one block per function and apply each function to its block."""
        blocks = self.split(x, *[1] * len(functions))
        return [f(block) for f, block in zip(functions, blocks, strict=True)]

    def _shown(self, name: str, y: Tensor) -> Tensor:
        self._sees(name, y.detach())
        return y


class StepRecorder:
    """Recorder of a layer's states and gate values by step, and of gradient norms.

    Attributes:
        states: for each step, the parts after it. A part of its own in the graph: its gradient
            is that of the state handed on, whichever parts were made of one another.
        shown: for each step, the values (B, H) that the equation shows by name, such as gates.
        squares: for each step, the squared norm of its term of the gradient of the maps of the
            past, summed over the rows. It is there after backpropagation.
        sees: is shown the values of every activation.
    """

    def __init__(self, sees: SeesValues = lambda name, y: None) -> None:
        self.states: list[LayerState] = []
        self.shown: list[dict[str, Tensor]] = []
        self.squares: dict[int, float] = {}
        self._ops = WatchedOps(sees)

    def __call__(self, cell: Cell, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """Take a sequence as `Cell.loop` does; see `Watch`."""
        from_input = cell.read_input(x.transpose(0, 1))  # (T, B, G H)
        noise = cell.noise(len(x))
        for x_t in from_input.unbind(0):
            maps = {
                name: (weight if name in cell.equation.readouts else self._counted(weight), bias)
                for name, (weight, bias) in noise.maps.items()
            }
            w = noise.into(tensor_maps(maps, cell.vectors()))
            parts = cell.after(state, cell.equation(self._ops, w, x_t, *state))
            self.shown.append(self._ops.shown)
            self._ops.shown = {}
            state = tuple(part.view_as(part) for part in parts)
            self.states.append(state)
        return torch.stack([parts[0] for parts in self.states[-x.shape[1] :]], 1), state

    def _counted(self, weight: Tensor) -> Tensor:
        """Wrap a matrix for the next step, and add up the norm of its gradient there."""
        if not (torch.is_grad_enabled() and weight.requires_grad):
            return weight
        step, view = len(self.states), weight.view_as(weight)

        def add(gradient: Tensor) -> None:
            self.squares[step] = self.squares.get(step, 0.0) + float(gradient.square().sum())

        view.register_hook(add)
        return view


@contextlib.contextmanager
def watch_layers(watches: Mapping[Cell, Watch]) -> Iterator[None]:
    """Attach observers to layers within a context."""
    for cell, watch in watches.items():
        cell.watch = watch
    try:
        yield
    finally:
        for cell in watches:
            cell.watch = None
