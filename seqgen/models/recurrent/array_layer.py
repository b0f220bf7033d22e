"""Recurrent layers over NumPy arrays, with their linear maps."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from seqgen.engines.arrays import Affine, Arrays, identity, input_map, input_map_of_ids
from seqgen.engines.native.recording import Recorded
from seqgen.engines.ops import ArrayOps, Ops
from seqgen.engines.weights import ArrayMap, Weights
from seqgen.models.recurrent.cells.equation import Equation, Maps, scale_and_shift

Pair = tuple[np.ndarray, np.ndarray]
# Positions of a text whose products with the input are made at once.
PIECE = 512


class RowInput(np.lib.mixins.NDArrayOperatorsMixin):
    """Lazy product W_x x + b of one token per row, computed when first used.

    An equation that does nothing with it but `w.hh(h, x)` gets both products in one: see `RowMap`.
    Everything else sees the array that it stands for.
    """

    __slots__ = "product", "source"

    def __init__(self, product: ArrayMap, source: np.ndarray) -> None:
        self.product, self.source = product, source

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.product(self.source)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        arrays = [np.asarray(x) if isinstance(x, RowInput) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **options)


class RowMap:
    """Recurrent map W h + b over arrays with constant weights.

    Args:
        weight: W (O, I).
        bias: b (O,) or none.
        beside: W_x (O, E) and its bias, where an input may be joined to h: the product of both
            matrices side by side takes less time than two.
    """

    def __init__(
        self,
        weight: np.ndarray,
        bias: np.ndarray | None,
        beside: Pair | None,
    ) -> None:
        self.affine = Affine(weight, bias)
        self._pair, self._beside = (weight, bias), beside

    def __call__(self, h: np.ndarray, plus: np.ndarray | RowInput | None = None) -> np.ndarray:
        """Return W h + b, and `plus` (B, O) added to it if given, for h (B, I)."""
        if self._beside is not None and isinstance(plus, RowInput):
            return self._joined(plus.source, h)
        y = self.affine(h)
        return y if plus is None else np.add(y, np.asarray(plus), y)

    @functools.cached_property
    def _joined(self) -> Affine:
        (weight, bias), (weight_x, bias_x) = self._pair, self._beside
        both = np.hstack([weight_x, weight])
        return Affine(both, bias_x if bias is None else bias_x + bias, self.affine.quantized)


def array_maps(
    maps: Maps, vectors: Mapping[str, np.ndarray], beside: Pair | None
) -> SimpleNamespace:
    """Build the maps and vectors that an equation reads in steps over arrays.

    Args:
        maps: `Equation.maps_of_past`.
        vectors: `Equation.vectors`.
        beside: the input's W_x and b, where it is a vector and not an id; joined to the maps that
            have as many outputs.
    """
    rows = {}
    for name, (weight, bias) in maps.items():
        fits = beside is not None and len(beside[0]) == len(weight)
        rows[name] = RowMap(weight, bias, beside if fits else None)
    return SimpleNamespace(**rows, **vectors)


class ArrayLayer:
    """Recurrent layer over NumPy arrays.

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
        self.w: Any = array_maps(maps, equation.vectors(ArrayOps, p), beside)
        self.w.dropped = identity

    def start(self, batch: int) -> Arrays:
        """Create the zero initial state."""
        return tuple(np.zeros((batch, size), self.dtype) for size in self.equation.sizes)

    def noise(self, rows: int) -> None:
        """Return None: nothing is trained over arrays, so there is no dropout."""

    def step(self, x: np.ndarray, state: Arrays, noise: None = None) -> Arrays:
        """Compute one time step from x (B, E), or ids (B,), and the state.

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
        """Run the layer over x (B, T, E), or ids (B, T); return every h (B, T, H) and the state.

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
