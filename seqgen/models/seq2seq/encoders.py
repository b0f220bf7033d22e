"""Encoders: what makes a sequence of features of a source, for a decoder to begin from or read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.models.dropout import Dropout
from seqgen.models.recurrent.cell import Cell, LayerState
from seqgen.models.recurrent.config import RecurrentConfig

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
        cell: the configuration of its cells, in the size of one direction.
        directions: a value of `DIRECTIONS`.
        beside_first: width of vectors that stand beside the first layer's output, 0 for none.

    Attributes:
        size: the width H of what comes out.
    """

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
        self.layers, self.size = nn.ModuleList(), input_size
        for _ in range(cell.num_layers):
            cells = nn.ModuleList(Cell(self.size, cell) for _ in self.directions)
            self.layers.append(cells)
            self.size = sum(one.sizes[0] for one in cells) + beside_first
            beside_first = 0

    @property
    def widths(self) -> list[tuple[int, ...]]:
        """For each layer, how wide the tensors are that it ends with."""
        each = ([one.sizes for one in cells] for cells in self.layers)
        return [tuple(map(sum, zip(*both, strict=True))) for both in each]

    def forward(
        self, values: Tensor, lengths: Sequence[int], beside_first: Tensor | None = None
    ) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Read sources.

        Args:
            values: (S, L) of int64, or (S, L, F), padded on the right.
            lengths: S of them.
            beside_first: what stands beside the first layer's output, (S, L, beside_first).

        Returns:
            The last layer's h (S, L, H), zero past a source's end, and for each layer the
            tensors (S, H) that its cells hand on at the end of their reading.
        """
        x = self.inputs(values)  # (S, L, E)
        mirror = mirrored(lengths, x.shape[1], x.device) if any(self.directions) else None
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
            if index == 0 and beside_first is not None:
                x = torch.cat([x, beside_first], -1)
            final.append(tuple(torch.cat(parts, -1) for parts in zip(*states, strict=True)))
        return x, tuple(final)


class PlainEncoder(nn.Module):
    """No layers: every place by itself, and their mean as the thought.

    For sources that are vectors already, or bags of words.

    Args:
        inputs: makes vectors (S, L, H) of the source's values.
        size: their width H.
        widths: for each layer of the decoder, how wide its tensors are: all begin with the mean.
    """

    def __init__(self, inputs: nn.Module, size: int, widths: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.inputs, self.size = inputs, size
        self.widths = [(size,) * len(parts) for parts in widths]

    def forward(
        self, values: Tensor, lengths: Sequence[int]
    ) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Read sources, as `RecurrentEncoder` does."""
        x = self.inputs(values).tanh()  # (S, L, H)
        counts = torch.tensor(lengths, device=x.device)[:, None]
        inside = torch.arange(x.shape[1], device=x.device) < counts  # (S, L)
        x = x * inside[..., None]
        mean = x.sum(1) / counts  # (S, H)
        return x, tuple((mean,) * len(parts) for parts in self.widths)


class Bridge(nn.Module):
    """How an encoder's last states become a decoder's first: as they are, where widths agree.

    Args:
        ends: for each layer of the encoder, how wide its tensors are.
        begins: the same of the decoder.
    """

    def __init__(self, ends: Sequence[tuple[int, ...]], begins: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList(
                nn.Identity() if end == begin else nn.Linear(end, begin)
                for end, begin in zip(*pair, strict=True)
            )
            for pair in zip(ends, begins, strict=True)
        )

    def forward(self, final: Sequence[LayerState]) -> tuple[LayerState, ...]:
        return tuple(
            tuple(map_(part) for map_, part in zip(maps, parts, strict=True))
            for maps, parts in zip(self.layers, final, strict=True)
        )


def ragged_sequence(layer: Cell, x: Tensor, lengths: Sequence[int]) -> tuple[Tensor, LayerState]:
    """Run a layer over rows of different lengths, none of which reads padding.

    Rows are sorted by length; all of them are read up to the shortest one's end, those that are
    longer go on from there, and so forth.

    Args:
        layer: what runs.
        x: (S, L, E), padded on the right.
        lengths: S of them, each at least 1.

    Returns:
        Every h (S, L, H), zero past a row's end, and each row's state at its own end.
    """
    rows, longest = len(lengths), max(lengths)
    if longest < x.shape[1]:
        y, state = ragged_sequence(layer, x[:, :longest], lengths)
        return F.pad(y, (0, 0, 0, x.shape[1] - longest)), state
    if min(lengths) == longest:
        return layer.sequence(x, layer.start(rows))
    noise = layer.noise(rows)
    order = sorted(range(rows), key=lambda row: -lengths[row])
    back = sorted(range(rows), key=order.__getitem__)
    x, state = x[order], layer.start(rows)
    outputs, ended = [], []
    ends = sorted(set(lengths))
    # One split, and not a slice each: the gradient of a slice is as large as all of x.
    pieces = x.split([end - begin for begin, end in pairwise([0, *ends])], 1)
    for end, piece in zip(ends, pieces, strict=True):
        y, state = layer.sequence(piece[: len(state[0])], state, noise.rows(len(state[0])))
        outputs.append(F.pad(y, (0, 0, 0, 0, 0, rows - len(y))))
        longer = sum(length > end for length in lengths)
        ended.append(tuple(part[longer:] for part in state))
        state = tuple(part[:longer] for part in state)
    final = (torch.cat(parts)[back] for parts in zip(*reversed(ended), strict=True))
    return torch.cat(outputs, 1)[back], tuple(final)


def mirrored(lengths: Sequence[int], size: int, device: torch.device, first: int = 0) -> Tensor:
    """Return where each place goes when sources turn around within their lengths, (S, L).

    Args:
        lengths: S of them.
        size: L.
        device: of what is returned.
        first: the place that they turn around from; those before it stay.
    """
    places = torch.arange(size)
    counts = torch.tensor(lengths)[:, None]
    turning = (places >= first) & (places < counts)
    return torch.where(turning, first + counts - 1 - places, places).to(device)


def turned(x: Tensor, mirror: Tensor) -> Tensor:
    """Return x (S, L, E) with the places of `mirror`."""
    return x.gather(1, mirror[..., None].expand_as(x))
