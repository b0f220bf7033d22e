"""Linear maps of many rows, as training and reading whole texts need them.

A processor's maker decides how fast torch's products are on it: MKL, which torch calls in float32,
leaves half the speed of an AMD core with AVX-512 unused, and oneDNN does not. Which is faster is
measured (`fastest_products`); only rounding differs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from seqgen.models.arrays import onednn_product, products_in_use

# Multiplications of a product below which a function written in Python costs more than it saves.
FEWEST_TERMS = 1 << 24


class Linear(nn.Linear):
    """`nn.Linear`, by whichever library is faster here."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return W x + b (..., O), for x (..., I), W (O, I) and b (O,), or no b."""
    if not _suits_onednn(x, weight):
        return F.linear(x, weight, bias)
    return _Product.apply(x.flatten(0, -2), weight, bias).unflatten(0, x.shape[:-1])


def _suits_onednn(x: Tensor, weight: Tensor) -> bool:
    """Return whether oneDNN is faster here, and what is computed is float32 on a CPU."""
    # Compiled code has its own products.
    if products_in_use().many != "onednn" or torch.compiler.is_compiling():
        return False
    exact = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    large = x.numel() * weight.shape[0] >= FEWEST_TERMS
    return exact and large and x.ndim > 1 and x.device.type == weight.device.type == "cpu"


class _Product(Function):
    """x W^T + b and its gradients, for x (N, I), each one product by oneDNN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn_product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            onednn_product(d_y, weight.T) if of_x else None,
            onednn_product(d_y.T, x.T) if of_weight else None,
            d_y.sum(0) if of_bias else None,
        )
