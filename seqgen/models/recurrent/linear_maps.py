"""Linear maps of the recurrent state in torch, for one step or a loop over time.

An equation writes `w.hh(h)` for W h + b, and `w.hh(h, x)` for x + W h + b, whichever kind of map
it is given; those over arrays are in `array_layer.py`. The second form takes one call where the sum
would take two.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from seqgen.engines.fast_layers import product, suits_onednn
from seqgen.models.recurrent.cells.equation import Maps


class TensorMap:
    """Recurrent map W h + b over tensors, computed in W's type."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.transposed, self.bias = weight.T, bias

    def __call__(self, h: Tensor, plus: Tensor | None = None) -> Tensor:
        """Return W h + b, and `plus` (B, O) added to it if given, for h (B, I)."""
        h = h.to(self.transposed.dtype)
        added = self.bias if plus is None else plus.to(h.dtype)
        y = h @ self.transposed if added is None else torch.addmm(added, h, self.transposed)
        return y if plus is None or self.bias is None else y + self.bias


class LoopMap(TensorMap):
    """Recurrent map for a loop, which computes the gradient of its weights in one product.

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
        """Store the input of a call; return the number of the call."""
        self.inputs.append(h.detach())
        self.gradients.append(None)
        return len(self.inputs) - 1

    def collect(self) -> tuple[Tensor | None, Tensor | None]:
        """Compute the gradients of W and b from all calls, and clear them."""
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
    """Autograd function for a call of a `LoopMap` by oneDNN."""

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
    """Autograd function at the start of a loop that returns its maps' weight gradients.

    Everything in the loop is made of what is handed on here, so that backpropagation comes back
    to this node after all calls of the maps.
    """

    @staticmethod
    def forward(
        ctx: Any, maps: list[LoopMap], begun: int, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Pass on x and the state, the first `begun` tensors; then come W and b of each map."""
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


def tensor_maps(maps: Maps, vectors: Mapping[str, Tensor]) -> SimpleNamespace:
    """Build the namespace of maps and vectors that an equation reads in one step."""
    return SimpleNamespace(**{name: TensorMap(*pair) for name, pair in maps.items()}, **vectors)


def loop_maps(
    maps: Maps, vectors: Mapping[str, Tensor], x: Tensor, state: tuple[Tensor, ...]
) -> tuple[SimpleNamespace, Tensor, tuple[Tensor, ...]]:
    """Build the namespace of an equation for a loop over time, with its inputs and state.

    Products are made in x's type, bf16 under autocast.
    """
    maps = {
        name: (weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
        for name, (weight, bias) in maps.items()
    }
    trained = torch.is_grad_enabled() and any(weight.requires_grad for weight, _ in maps.values())
    if not trained:
        return tensor_maps(maps, vectors), x, state
    called = {name: LoopMap(*pair) for name, pair in maps.items()}
    pairs = [tensor for pair in maps.values() for tensor in pair]
    begun = x, *state
    x, *state = _Collect.apply([*called.values()], len(begun), *begun, *pairs)
    return SimpleNamespace(**called, **vectors), x, tuple(state)
