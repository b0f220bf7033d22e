"""Recurrent layers over a source and over a target, as torch modules; see `source_layers.py`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from seqgen.models.dropout import Dropout
from seqgen.models.recurrent.cell import Cell, LayerState
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.noise import Noise
from seqgen.models.seq2seq.recurrent_config import stacked
from seqgen.models.seq2seq.source_layers import (
    SourceLayers,
    SourceVectors,
    TargetLayers,
    bridged,
)


class RecurrentEncoder(SourceLayers, nn.Module):
    """See `SourceLayers`.

    Args:
        inputs: makes vectors (S, L, E) of the source's values.
        input_size: their width E.
        cell: the configuration of its cells, in the size of one direction.
        directions: a value of `DIRECTIONS`.
        beside_first: width of vectors that stand beside the first layer's output, 0 for none.

    Attributes:
        size: the width H of what comes out.
    """

    forward = SourceLayers.encoded

    def __init__(
        self,
        inputs: nn.Module,
        input_size: int,
        cell: RecurrentConfig,
        directions: Sequence[bool],
        beside_first: int = 0,
    ) -> None:
        super().__init__()
        self.inputs, self.directions = inputs, tuple(directions)
        self.residual, self.dropout = cell.residual, Dropout(cell.dropout, cell.dropout_shares)
        equations = stacked(cell, input_size, len(self.directions), beside_first)
        self.layers = nn.ModuleList(
            nn.ModuleList(Cell(one.input_size, cell) for one in each) for each in equations
        )
        self.size = sum(one.sizes[0] for one in equations[-1])
        self.size += beside_first * (len(equations) == 1)


class PlainEncoder(SourceVectors, nn.Module):
    """See `SourceVectors`."""

    forward = SourceVectors.encoded

    def __init__(self, inputs: nn.Module, parts: Sequence[int]) -> None:
        super().__init__()
        self.inputs, self.parts = inputs, parts


class Bridge(nn.Module):
    """How an encoder's last states become a decoder's first: as they are, where widths agree.

    Args:
        widths: for each layer, how wide its parts are at the end of one and in the other.
    """

    def __init__(self, widths: Sequence[Sequence[tuple[int, int]]]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList(
                nn.Identity() if end == begin else nn.Linear(end, begin) for end, begin in each
            )
            for each in widths
        )

    def forward(self, final: Sequence[LayerState]) -> tuple[LayerState, ...]:
        return bridged(self.layers, final)


class RecurrentDecoder(TargetLayers, nn.Module):
    """See `TargetLayers`."""

    forward = TargetLayers.decoded

    def __init__(self, input_size: int, cell: RecurrentConfig) -> None:
        super().__init__()
        self.input_size, self.residual = input_size, cell.residual
        equations = [one for (one,) in stacked(cell, input_size)]
        self.layers = nn.ModuleList(Cell(one.input_size, cell) for one in equations)
        self.dropout = Dropout(cell.dropout, cell.dropout_shares)

    def noise(self, rows: int) -> list[tuple[Tensor | None, Noise]]:
        """Draw what one training call drops in `rows` rows, in each layer and in its input."""
        return [
            (self.dropout.shared_mask(rows, layer.equation.input_size, layer.bias), noise)
            for layer in self.layers
            for noise in [layer.noise(rows)]
        ]
