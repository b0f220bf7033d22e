"""Linear maps of the past, as an equation calls them: over tensors, in a loop, over arrays.

An equation writes `w.hh(h)` for W h + b, and `w.hh(h, x)` for x + W h + b, whichever of the
three kinds of map it is given. The second form takes one call where the sum would take two.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from seqgen.models.engines.arrays import Affine, ArrayMap
from seqgen.models.engines.onednn_linear import product, suits_onednn
from seqgen.models.engines.tensor_products import as_array

# By name, W (O, I) and b (O,), or no b.
Maps = Mapping[str, tuple[Tensor, Tensor | None]]


class TensorMap:
    """W h + b over tensors, in W's type."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.transposed, self.bias = weight.T, bias

    def __call__(self, h: Tensor, plus: Tensor | None = None) -> Tensor:
        """Return W h + b, and `plus` (B, O) added to it if given, for h (B, I)."""
        h = h.to(self.transposed.dtype)
        added = self.bias if plus is None else plus.to(h.dtype)
        y = h @ self.transposed if added is None else torch.addmm(added, h, self.transposed)
        return y if plus is None or self.bias is None else y + self.bias


class LoopMap(TensorMap):
    """A map that is called many times and gets the gradient of its weights in one product.

    Backpropagation would make the gradient of W as a sum of one product a call: many small
    products, and as many passes over a matrix of W's size. Here the weights take no part in the
    graph of a call. What went in is kept, what comes back is caught, and `_Collect` multiplies
    them when all calls are through.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight.detach(), None if bias is None else bias.detach())
        self.inputs: list[Tensor] = []
        self.gradients: list[Tensor | None] = []

    def __call__(self, h: Tensor, plus: Tensor | None = None) -> Tensor:
        h = h.to(self.transposed.dtype)
        if suits_onednn(len(h), self.transposed):
            return _Product.apply(self, h, plus)
        y = super().__call__(h, plus)
        y.register_hook(functools.partial(self.gradients.__setitem__, self.keep(h)))
        return y

    def keep(self, h: Tensor) -> int:
        """Keep what goes into a call; return the number of the call."""
        self.inputs.append(h.detach())
        self.gradients.append(None)
        return len(self.inputs) - 1

    def collect(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of W and b, and forget those of the calls."""
        known = [i for i, gradient in enumerate(self.gradients) if gradient is not None]
        if not known:
            return None, None
        d_y = torch.cat([self.gradients[i] for i in known])  # (calls B, O)
        self.gradients[:] = [None] * len(self.gradients)
        d_bias = None if self.bias is None else d_y.sum(0)
        inputs = torch.cat([self.inputs[i] for i in known])  # (calls B, I)
        if suits_onednn(len(inputs), self.transposed):
            return product(d_y.T, inputs.T), d_bias
        return d_y.T @ inputs, d_bias


class _Product(Function):
    """A call of a `LoopMap` by oneDNN."""

    @staticmethod
    def forward(ctx: Any, map_: LoopMap, h: Tensor, plus: Tensor | None) -> Tensor:
        ctx.map, ctx.call, ctx.added = map_, map_.keep(h), plus is not None
        y = product(h, map_.transposed.T, map_.bias)
        return y if plus is None else y.add_(plus)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        ctx.map.gradients[ctx.call] = d_y
        d_h = product(d_y, ctx.map.transposed) if ctx.needs_input_grad[1] else None
        return None, d_h, d_y if ctx.added else None


class _Collect(Function):
    """Hands on what a loop starts from, and gives its maps' weights their gradients.

    Everything in the loop is made of what is handed on here, so that backpropagation comes back
    to this node after all calls of the maps.
    """

    @staticmethod
    def forward(
        ctx: Any, maps: list[LoopMap], begun: int, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Return the first `begun` tensors, x and a state; after them stand each map's W and b."""
        ctx.maps = maps
        # Copies, for a state that was read from a file may lie at any address, and products
        # round by that.
        x, *state = tensors[:begun]
        return x.view_as(x), *(part.clone() for part in state)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights = [gradient for one in ctx.maps for gradient in one.collect()]
        return None, None, *gradients, *weights


def over_tensors(maps: Maps, vectors: Mapping[str, Tensor]) -> SimpleNamespace:
    """Return the maps for one step, and the vectors beside them, each under its name."""
    return SimpleNamespace(**{name: TensorMap(*pair) for name, pair in maps.items()}, **vectors)


def over_loop(
    maps: Maps, vectors: Mapping[str, Tensor], x: Tensor, state: tuple[Tensor, ...]
) -> tuple[SimpleNamespace, Tensor, tuple[Tensor, ...]]:
    """Return the maps for a loop over time, and what it starts from: x (T, B, N) and the state.

    Products are made in x's type, bf16 under autocast.
    """
    maps = {
        name: (weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
        for name, (weight, bias) in maps.items()
    }
    trained = torch.is_grad_enabled() and any(weight.requires_grad for weight, _ in maps.values())
    if not trained:
        return over_tensors(maps, vectors), x, state
    called = {name: LoopMap(*pair) for name, pair in maps.items()}
    pairs = [tensor for pair in maps.values() for tensor in pair]
    begun = x, *state
    x, *state = _Collect.apply([*called.values()], len(begun), *begun, *pairs)
    return SimpleNamespace(**called, **vectors), x, tuple(state)


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
        self, weight: Tensor, bias: Tensor | None, beside: tuple[Tensor, Tensor] | None
    ) -> None:
        self.affine = Affine(as_array(weight), as_array(bias))
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
        both = torch.hstack([weight_x, weight])
        bias = bias_x if bias is None else bias_x + bias
        return Affine(as_array(both), as_array(bias), self.affine.reduced)


def over_arrays(
    maps: Maps, vectors: Mapping[str, Tensor], beside: tuple[Tensor, Tensor] | None
) -> SimpleNamespace:
    """Return the maps for steps over arrays.

    Args:
        maps: what `over_tensors` takes.
        vectors: as there.
        beside: the input's W_x and b, where it is a vector and not an id; joined to the maps that
            have as many outputs.
    """
    rows = {}
    for name, (weight, bias) in maps.items():
        fits = beside is not None and len(beside[0]) == len(weight)
        rows[name] = RowMap(weight, bias, beside if fits else None)
    arrays = {name: vector.detach().numpy() for name, vector in vectors.items()}
    return SimpleNamespace(**rows, **arrays)
