"""Recordings of a recurrent network's layers: inputs, gates and states at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from seqgen.plugins.inspect.watched import StepRecorder, watch_layers

if TYPE_CHECKING:
    from seqgen.models.recurrent.cell import Cell, LayerState
    from seqgen.models.recurrent.cells.equation import Equation
    from seqgen.models.recurrent.model import RecurrentLM


class RecordingWatch:
    """Observer that records one layer's inputs, gates and states for one row."""

    def __init__(self) -> None:
        self._steps, self._inputs = StepRecorder(), []

    def __call__(self, cell: Cell, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """See `StepRecorder`."""
        self._inputs.append(x.detach()[0])
        return self._steps(cell, x, state)

    @property
    def inputs(self) -> np.ndarray:
        """Inputs of the layer, (T, E)."""
        return torch.cat(self._inputs).double().cpu().numpy()

    @property
    def shown(self) -> list[dict[str, np.ndarray]]:
        """Named values (H,) that the equation exposes, by step."""
        return [{name: _row(y) for name, y in step.items()} for step in self._steps.shown]

    @property
    def states(self) -> list[list[np.ndarray]]:
        """Parts (H,) of the state after each step."""
        return [[_row(part) for part in step] for step in self._steps.states]


def _row(x: Tensor) -> np.ndarray:
    return x.detach()[0].double().cpu().numpy()


def record_layers(
    model: RecurrentLM, tokens: np.ndarray
) -> tuple[list[tuple[Equation, RecordingWatch]], Tensor]:
    """Record every layer of a network over tokens (T,); also return its features (1, T, H)."""
    recordings = {cell: RecordingWatch() for cell in model.layers}
    # Without a graph one token goes through `Cell.step`, which no watch sees.
    with torch.set_grad_enabled(len(tokens) == 1), watch_layers(recordings):
        features, _ = model.hidden(model.ids(tokens[None]), None)
    return [(cell.equation, made) for cell, made in recordings.items()], features.detach()
