"""Linear maps of the past over arrays, for weights that do not change; see `linear_maps.py`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from seqgen.models.engines.arrays import Affine, ArrayMap
from seqgen.models.recurrent.equation import Maps

Pair = tuple[np.ndarray, np.ndarray]


class RowInput(np.lib.mixins.NDArrayOperatorsMixin):
    """W_x x + b of one token a row, made when it is asked for, or never.

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
    """W h + b over arrays, for weights that do not change.

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


def over_arrays(
    maps: Maps, vectors: Mapping[str, np.ndarray], beside: Pair | None
) -> SimpleNamespace:
    """Return the maps for steps over arrays.

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
