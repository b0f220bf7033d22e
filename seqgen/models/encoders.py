"""Encoders: what makes a sequence of features of a source, for a decoder to begin from or read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.models.dropout import Dropout
from seqgen.models.recurrent import LayerState, RecurrentConfig, RecurrentLayer

# Which ways each kind of encoder reads: False from the left, True from the right.
DIRECTIONS = {"forward": (False,), "reversed": (True,), "bidirectional": (False, True)}


class RecurrentEncoder(nn.Module):
    """A stack of recurrent layers over a source, read one way or both.

    `reversed` reads the source from its end (Sutskever et al. 2014), `bidirectional` both ways,
    each with half of the units, side by side in every layer (Schuster and Paliwal 1997; Bahdanau
    et al. 2015).

    Args:
        inputs: makes vectors (S, L, E) of the source's values.
        input_size: their width E.
        layer: the recurrent layer's class.
        cell: its configuration, in the size of one direction.
        directions: a value of `DIRECTIONS`.
    """

    def __init__(
        self,
        inputs: nn.Module,
        input_size: int,
        layer: type[RecurrentLayer],
        cell: RecurrentConfig,
        directions: Sequence[bool],
    ) -> None:
        super().__init__()
        self.inputs, self.directions = inputs, tuple(directions)
        self.residual, self.dropout = cell.residual, Dropout(cell.dropout)
        whole = cell.hidden_size * len(self.directions)
        sizes = [input_size] + [whole] * (cell.num_layers - 1)
        self.layers = nn.ModuleList(
            nn.ModuleList(layer(size, cell) for _ in self.directions) for size in sizes
        )

    def forward(
        self, values: Tensor, lengths: Sequence[int]
    ) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Read sources.

        Args:
            values: (S, L) of int64, or (S, L, F), padded on the right.
            lengths: S of them.

        Returns:
            The last layer's h (S, L, H), zero past a source's end, and for each layer the
            tensors (S, H) that its cells hand on at the end of their reading.
        """
        size = max(lengths)
        x = self.inputs(values[:, :size])  # (S, L, E)
        mirror = mirrored(lengths, size, x.device) if any(self.directions) else None
        final = []
        for index, cells in enumerate(self.layers):
            read, outputs, states = self.dropout(x), [], []
            for cell, backwards in zip(cells, self.directions, strict=True):
                seen = turned(read, mirror) if backwards else read
                y, state = ragged_sequence(cell, seen, lengths)
                outputs.append(turned(y, mirror) if backwards else y)
                states.append(state)
            y = torch.cat(outputs, -1)  # (S, L, H)
            x = x + y if self.residual and index > 0 else y
            final.append(tuple(torch.cat(parts, -1) for parts in zip(*states, strict=True)))
        return x, tuple(final)


class PlainEncoder(nn.Module):
    """No layers: every place by itself, and their mean as the thought.

    For sources that are vectors already, or bags of words.

    Args:
        inputs: makes vectors (S, L, H) of the source's values.
        layers: how many decoder layers begin with the mean.
        parts: how many tensors each of them begins with.
    """

    def __init__(self, inputs: nn.Module, layers: int, parts: int) -> None:
        super().__init__()
        self.inputs, self.shape = inputs, (layers, parts)

    def forward(
        self, values: Tensor, lengths: Sequence[int]
    ) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Read sources, as `RecurrentEncoder` does."""
        x = self.inputs(values[:, : max(lengths)]).tanh()  # (S, L, H)
        counts = torch.tensor(lengths, device=x.device)[:, None]
        inside = torch.arange(x.shape[1], device=x.device) < counts  # (S, L)
        x = x * inside[..., None]
        mean = x.sum(1) / counts  # (S, H)
        layers, parts = self.shape
        return x, ((mean,) * parts,) * layers


def empty_state(layer: RecurrentLayer, rows: int) -> LayerState:
    """Return the tensors (B, H) that a layer begins with where nothing else is given: zeros."""
    zero = layer.bias.new_zeros(rows, layer.hidden_size)
    return (zero,) * layer.state_parts


def ragged_sequence(
    layer: RecurrentLayer, x: Tensor, lengths: Sequence[int]
) -> tuple[Tensor, LayerState]:
    """Run a layer over rows of different lengths, none of which reads padding.

    Rows are sorted by length; all of them are read up to the shortest one's end, those that are
    longer go on from there, and so forth.

    Args:
        layer: what runs.
        x: (S, L, E), padded on the right; L is the longest length.
        lengths: S of them, each at least 1.

    Returns:
        Every h (S, L, H), zero past a row's end, and each row's state at its own end.
    """
    rows = len(lengths)
    if min(lengths) == max(lengths):
        return layer.sequence(x, empty_state(layer, rows))
    order = sorted(range(rows), key=lambda row: -lengths[row])
    back = sorted(range(rows), key=order.__getitem__)
    x, state = x[order], empty_state(layer, rows)
    outputs, ended, begin = [], [], 0
    for end in sorted(set(lengths)):
        y, state = layer.sequence(x[: len(state[0]), begin:end], state)
        outputs.append(F.pad(y, (0, 0, 0, 0, 0, rows - len(y))))
        longer = sum(length > end for length in lengths)
        ended.append(tuple(part[longer:] for part in state))
        state, begin = tuple(part[:longer] for part in state), end
    final = (torch.cat(parts)[back] for parts in zip(*reversed(ended), strict=True))
    return torch.cat(outputs, 1)[back], tuple(final)


def mirrored(lengths: Sequence[int], size: int, device: torch.device) -> Tensor:
    """Return where each place goes when sources turn around within their lengths, (S, L)."""
    places = torch.arange(size)
    counts = torch.tensor(lengths)[:, None]
    return torch.where(places < counts, counts - 1 - places, places).to(device)


def turned(x: Tensor, mirror: Tensor) -> Tensor:
    """Return x (S, L, E) with the places of `mirror`."""
    return x.gather(1, mirror[..., None].expand_as(x))
