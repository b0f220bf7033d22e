"""A recurrent layer over arrays, whose weights do not change."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqgen.models.engines.arrays import Arrays, input_map, input_map_of_ids
from seqgen.models.engines.native.recording import Recorded
from seqgen.models.engines.ops import ArrayOps, Ops
from seqgen.models.engines.weights import Weights
from seqgen.models.recurrent.equation import Equation, unchanged
from seqgen.models.recurrent.norm_terms import scale_and_shift
from seqgen.models.recurrent.row_maps import RowInput, over_arrays

# Positions of a text whose products with the input are made at once.
PIECE = 512


class ArrayLayer:
    """A recurrent layer over arrays.

    Args:
        equation: what a step does.
        p: its weights.
        inputs: (V, E), the vectors that ids stand for, where the layer is to take ids; `one_hot`
            where they are the identity; None where it takes vectors.
    """

    one_hot = "one-hot"
    ops: Ops = ArrayOps

    def __init__(
        self, equation: Equation, p: Weights, inputs: np.ndarray | str | None = None
    ) -> None:
        self.equation, self.takes_ids = equation, inputs is not None
        weight, bias = equation.map_of_input(ArrayOps, p)
        if equation.config.norms == "input":
            scale, shift = scale_and_shift(p.part("input_norm"))
            weight, bias = weight * scale[:, None], bias + shift
        of_input, self.width, self.dtype, self.bias = (weight, bias), len(bias), bias.dtype, bias
        if inputs is self.one_hot:
            self.product = input_map_of_ids(*of_input)
        else:
            self.product = input_map(*of_input, inputs)
        beside = None if self.takes_ids else of_input
        maps = equation.maps_of_past(ArrayOps, p)
        self.w: Any = over_arrays(maps, equation.vectors(ArrayOps, p), beside)
        self.w.dropped = unchanged

    def start(self, batch: int) -> Arrays:
        """Return the parts before the first step: zeros."""
        return tuple(np.zeros((batch, size), self.dtype) for size in self.equation.sizes)

    def noise(self, rows: int) -> None:
        """Return what a call drops: nothing."""

    def step(self, x: np.ndarray, state: Arrays, noise: None = None) -> Arrays:
        """Take one step: x (B, E), or ids (B,), and the parts to the next ones.

        Where it takes ids, a recorded x is what the products of an id are.
        """
        if self.takes_ids:
            read = x if isinstance(x, Recorded) else self.product(x)
        else:
            read = RowInput(self.product, x)
        return self.equation.expected(state, self.equation(self.ops, self.w, read, *state))

    def sequence(
        self, x: np.ndarray, state: Arrays, noise: None = None
    ) -> tuple[np.ndarray, Arrays]:
        """Take x (B, T, E), or ids (B, T), to every h (B, T, H) and the parts after it.

        The input's products are made for many steps at once.
        """
        rows, length = x.shape[:2]
        outputs = []
        for begin in range(0, length, PIECE):
            piece = x[:, begin : begin + PIECE].swapaxes(0, 1)  # (T, B, E), or (T, B)
            read = self.product(piece.reshape(-1, *piece.shape[2:])).reshape(-1, rows, self.width)
            for x_t in read:
                new = self.equation(self.ops, self.w, x_t, *state)
                state = self.equation.expected(state, new)
                outputs.append(state[0])
        return np.stack(outputs, 1), state
