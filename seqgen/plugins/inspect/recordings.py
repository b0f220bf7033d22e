"""What the layers of a recurrent network read, show and hand on at every step of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from seqgen.models.recurrent.watched import StepRecorder, watch_layers

if TYPE_CHECKING:
    from seqgen.models.recurrent.cell import Cell, LayerState
    from seqgen.models.recurrent.cells.equation import Equation
    from seqgen.models.recurrent.model import RecurrentLM


class RecordingWatch:
    """A `Watch` that also keeps what the layer reads, of one row."""

    def __init__(self) -> None:
        self._steps, self._inputs = StepRecorder(), []

    def __call__(self, cell: Cell, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """See `StepRecorder`."""
        self._inputs.append(x.detach()[0])
        return self._steps(cell, x, state)

    @property
    def inputs(self) -> np.ndarray:
        """(T, E), what was read."""
        return torch.cat(self._inputs).double().cpu().numpy()

    @property
    def shown(self) -> list[dict[str, np.ndarray]]:
        """For each step, the values (H,) that the equation shows by name."""
        return [{name: _row(y) for name, y in step.items()} for step in self._steps.shown]

    @property
    def states(self) -> list[list[np.ndarray]]:
        """For each step, the parts (H,) after it."""
        return [[_row(part) for part in step] for step in self._steps.states]


def _row(x: Tensor) -> np.ndarray:
    return x.detach()[0].double().cpu().numpy()


def record_layers(
    model: RecurrentLM, tokens: np.ndarray
) -> tuple[list[tuple[Equation, RecordingWatch]], Tensor]:
    """Record every layer of a network over tokens (T,), and return the features (1, T, H) too."""
    recordings = {cell: RecordingWatch() for cell in model.layers}
    # Without a graph one token goes through `Cell.step`, which no watch sees.
    with torch.set_grad_enabled(len(tokens) == 1), watch_layers(recordings):
        features, _ = model.hidden(model.ids(tokens[None]), None)
    return [(cell.equation, made) for cell, made in recordings.items()], features.detach()
