"""Recurrent layers of encoder and decoder, over arrays or tensors.

What a training call drops, `noise` and masks, is drawn by torch modules; over arrays there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from seqgen.engines.ops import Leaf, ops_of, padded
from seqgen.engines.parts import DropoutPiece, Linear, Part, Piece, Pieces, Stack
from seqgen.models.recurrent.cells.equation import Equation, Parts
from seqgen.models.recurrent.equations import Layer

if TYPE_CHECKING:
    from seqgen.models.recurrent.settings import RecurrentConfig


class SourceLayers(Part):
    """Recurrent encoder: a stack of layers that reads a source in one or both directions.

    `reversed` reads the source from its end (Sutskever et al. 2014), `bidirectional` both ways,
    each with half of the units, side by side in every layer (Schuster and Paliwal 1997; Bahdanau
    et al. 2015).

    Attributes:
        directions: a value of `DIRECTIONS`.
        residual: layers but the first add their input to their output.
    """

    directions: Sequence[bool]
    residual: bool

    def pieces(
        self, inputs: Piece, equations: Sequence[Sequence[Equation]], directions: Sequence[bool]
    ) -> Pieces:
        """List the input map, dropout and layers of the encoder.

        Args:
            inputs: makes vectors (S, L, E) of the source's values.
            equations: for each layer those of its directions; see `stack_cells`.
            directions: a value of `DIRECTIONS`.
        """
        cell = equations[0][0].config
        self.directions, self.residual = directions, cell.residual
        return {
            "inputs": inputs,
            "dropout": DropoutPiece(cell.dropout, cell.dropout_shares),
            "layers": Stack([Stack([*map(Layer, each)]) for each in equations]),
        }

    def run(
        self, values: Leaf, lengths: Sequence[int], beside_first: Leaf | None = None
    ) -> tuple[Leaf, tuple[Parts, ...]]:
        """Encode sources; return features and the final state of each layer.

        Args:
            values: (S, L) of int64, or (S, L, F), padded on the right.
            lengths: S of them.
            beside_first: vectors that are joined to the first layer's output, (S, L, N).

        Returns:
            The last layer's h (S, L, H), zero past a source's end, and for each layer the
            parts (S, H) that its cells hand on at the end of their reading.
        """
        x = self.inputs(values)  # (S, L, E)
        ops = ops_of(x)
        mirror = reversal_indices(lengths, x) if any(self.directions) else None
        final = []
        for index, cells in enumerate(self.layers):
            seen, outputs, states = self.dropout(x), [], []
            for cell, backwards in zip(cells, self.directions, strict=True):
                read = ops.at_places(seen, mirror) if backwards else seen
                y, state = ragged_sequence(cell, read, lengths)
                outputs.append(ops.at_places(y, mirror) if backwards else y)
                states.append(state)
            y = ops.join(*outputs)  # (S, L, H)
            x = x + y if self.residual and index > 0 else y
            if index == 0 and beside_first is not None:
                x = ops.join(x, beside_first)
            final.append(tuple(ops.join(*parts) for parts in zip(*states, strict=True)))
        return x, tuple(final)


class SourceVectors(Part):
    """Encoder without layers: tanh of each position's vector, and their mean as state.

    For sources that are vectors already, or bags of words.

    Attributes:
        parts: for each layer of the decoder, how many parts it has: all begin with the mean.
    """

    parts: Sequence[int]

    def pieces(self, inputs: Piece, begins: Widths) -> Pieces:
        """List the input map, which gives vectors (S, L, H), for a decoder with parts `begins`."""
        self.parts = [len(parts) for parts in begins]
        return {"inputs": inputs}

    def run(self, values: Leaf, lengths: Sequence[int]) -> tuple[Leaf, tuple[Parts, ...]]:
        """Encode sources; see `SourceLayers.run`."""
        x = self.inputs(values)
        ops = ops_of(x)
        counts = ops.ints(x, lengths)[:, None]
        inside = ops.count(x, x.shape[1]) < counts  # (S, L)
        x = ops.tanh(x) * inside[..., None]  # (S, L, H)
        mean = x.sum(1) / ops.like(counts, x)  # (S, H)
        return x, tuple((mean,) * count for count in self.parts)


class TargetLayers(Part):
    """Recurrent decoder: a stack of layers that reads the target.

    Attributes:
        input_size: the width of what the first layer reads.
        residual: see `SourceLayers`.
    """

    input_size: int
    residual: bool

    def pieces(self, equations: Sequence[Equation]) -> Pieces:
        """List the layers, given the equation of each, and their dropout."""
        cell, self.input_size = equations[0].config, equations[0].input_size
        self.residual = cell.residual
        dropout = DropoutPiece(cell.dropout, cell.dropout_shares)
        return {"layers": Stack([*map(Layer, equations)]), "dropout": dropout}

    def noise(self, rows: int) -> Sequence[tuple[Any, Any]]:
        """Draw dropout for a call on `rows` rows: each layer's input mask and its own noise."""
        return [
            (self.dropout.shared_mask(rows, layer.equation.input_size, layer.bias), noise)
            for layer in self.layers
            for noise in [layer.noise(rows)]
        ]

    def run(
        self, x: Leaf, states: Sequence[Parts], noise: Sequence[tuple[Any, Any]]
    ) -> tuple[Leaf, tuple[Parts, ...]]:
        """Run the decoder over x (B, T, E); return h (B, T, H) and the new states."""
        after = []
        together = zip(self.layers, states, noise, strict=True)
        for index, (layer, past, (mask, of_layer)) in enumerate(together):
            seen = self.dropout(x, mask)
            if seen.shape[1] == 1:
                past = layer.step(seen[:, 0], past, of_layer)
                y = past[0][:, None]
            else:
                y, past = layer.sequence(seen, past, of_layer)  # (B, T, H)
            x = x + y if self.residual and index > 0 else y
            after.append(past)
        return x, tuple(after)


class Bridge(Part):
    """Linear maps from the encoder's final states to the decoder's initial states."""

    def pieces(self, widths: Sequence[Sequence[tuple[int, int]]]) -> Pieces:
        """List a linear map for each part whose width differs, given pairs of widths."""
        layers = [
            Stack([Piece() if end == begin else Linear(end, begin) for end, begin in each])
            for each in widths
        ]
        return {"layers": Stack(layers)}

    def run(self, final: Sequence[Parts]) -> tuple[Parts, ...]:
        return tuple(
            tuple(map_(part) for map_, part in zip(maps, parts, strict=True))
            for maps, parts in zip(self.layers, final, strict=True)
        )


def ragged_sequence(layer: Any, x: Leaf, lengths: Sequence[int]) -> tuple[Leaf, Parts]:
    """Run a layer over rows of different lengths without reading padding.

    Rows are sorted by length; all of them are read up to the shortest one's end, those that are
    longer go on from there, and so forth.

    Args:
        layer: what runs.
        x: (S, L, E), padded on the right.
        lengths: S of them, each at least 1.

    Returns:
        Every h (S, L, H), zero past a row's end, and each row's state at its own end.
    """
    rows, longest, ops = len(lengths), max(lengths), ops_of(x)
    if longest < x.shape[1]:
        y, state = ragged_sequence(layer, x[:, :longest], lengths)
        return padded(y, 1, x.shape[1]), state
    if min(lengths) == longest:
        return layer.sequence(x, layer.start(rows))
    noise = layer.noise(rows)
    order = sorted(range(rows), key=lambda row: -lengths[row])
    back = sorted(range(rows), key=order.__getitem__)
    x, state = x[order], layer.start(rows)
    outputs, ended = [], []
    ends = sorted(set(lengths))
    for end, piece in zip(ends, split_time(x, pairwise([0, *ends])), strict=True):
        count = len(state[0])
        y, state = layer.sequence(piece[:count], state, noise and noise.rows(count))
        outputs.append(padded(y, 0, rows))
        longer = sum(length > end for length in lengths)
        ended.append(tuple(part[longer:] for part in state))
        state = tuple(part[:longer] for part in state)
    final = (ops.along(0, *parts)[back] for parts in zip(*reversed(ended), strict=True))
    return ops.along(1, *outputs)[back], tuple(final)


def split_time(x: Leaf, spans: Iterable[tuple[int, int]]) -> list[Leaf]:
    """Split x (B, T, E) along time into consecutive spans.

    It is one split, and not a slice each: the gradient of a slice is as large as all of x.
    """
    pieces = ops_of(x).cut(x.swapaxes(0, 1), *(end - begin for begin, end in spans))
    return [piece.swapaxes(0, 1) for piece in pieces]


def reversal_indices(lengths: Sequence[int], x: Leaf, first: int = 0) -> Leaf:
    """Compute the indices (S, L) that reverse each source within its length.

    Args:
        lengths: S of them.
        x: (S, L, ...), the sources.
        first: the place that they turn around from; those before it stay.
    """
    ops = ops_of(x)
    places, counts = ops.count(x, x.shape[1]), ops.ints(x, lengths)[:, None]
    turning = (places >= first) & (places < counts)
    return ops.where(turning, first + counts - 1 - places, places)


Widths = list[tuple[int, ...]]


def stack_cells(
    cell: RecurrentConfig, size: int, copies: int = 1, beside: int = 0
) -> list[list[Equation]]:
    """Create the equations of a stack of layers, each of several parallel cells.

    Args:
        cell: of each.
        size: the width of what the first layer reads.
        copies: cells in a layer.
        beside: width of the vectors that are joined to the first layer's output.
    """
    layers = []
    for _ in range(cell.num_layers):
        layers.append([cell.equation(size, cell) for _ in range(copies)])
        size = sum(one.sizes[0] for one in layers[-1]) + beside
        beside = 0
    return layers
