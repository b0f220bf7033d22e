"""The recurrent layers of a decoder, over what has been written."""

from __future__ import annotations

from torch import Tensor, nn

from seqgen.models.dropout import Dropout
from seqgen.models.recurrent.cell import Cell, LayerState
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.noise import Noise

# What a training call drops: the mask of a layer's input, if it has one for all T, and the layer's.
LayerNoise = tuple[Tensor | None, Noise]


class RecurrentDecoder(nn.Module):
    """A stack of recurrent layers over what has been written.

    Attributes:
        input_size: the width of what the first layer reads.
        size: the width H of what comes out.
    """

    def __init__(self, input_size: int, cell: RecurrentConfig) -> None:
        super().__init__()
        self.input_size = input_size
        self.layers, self.size = nn.ModuleList(), input_size
        for _ in range(cell.num_layers):
            self.layers.append(Cell(self.size, cell))
            self.size = self.layers[-1].sizes[0]
        self.residual = cell.residual
        self.dropout = Dropout(cell.dropout, cell.dropout_shares)

    def noise(self, rows: int) -> list[LayerNoise]:
        """Draw what one training call drops in `rows` rows, in each layer and in its input."""
        return [
            (self.dropout.shared_mask(rows, layer.equation.input_size, layer.bias), noise)
            for layer in self.layers
            for noise in [layer.noise(rows)]
        ]

    def forward(
        self, x: Tensor, states: tuple[LayerState, ...], noise: list[LayerNoise]
    ) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Take inputs x (B, T, E) to the last layer's h (B, T, H), and every layer's state."""
        after = []
        together = zip(self.layers, states, noise, strict=True)
        for index, (layer, past, (mask, of_layer)) in enumerate(together):
            seen = self.dropout(x, mask)
            if seen.shape[1] == 1:
                past = layer.step(seen[:, 0], past, of_layer)
                y = past[0].unsqueeze(1)
            else:
                y, past = layer.sequence(seen, past, of_layer)  # (B, T, H)
            x = x + y if self.residual and index > 0 else y
            after.append(past)
        return x, tuple(after)
