"""Linear and RMSNorm layers with hand-written gradients, for faster training.

PyTorch computes products of float32 matrices by MKL, which takes twice as long as oneDNN on some
processors. oneDNN's product has no gradient of its own. Which of both is used depends on
`arrays.use_products` and the shapes alone: they round differently, and a resumed run must continue
as if it had never stopped.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from seqgen.engines.blocks import BlockMatrix
from seqgen.engines.quantized import OF_HEAD, QUANTIZED, QuantizedMap
from seqgen.engines.tensor_products import asks_onednn

# Multiplications from which oneDNN's product takes less time, with its call of some microseconds.
LEAST_MULTIPLICATIONS = 1 << 21
# The same for maps of sequences. oneDNN makes code for each new shape, which takes it most of a
# millisecond, and pieces of sources of different lengths have hundreds of small ones.
LEAST_OF_SEQUENCES = 1 << 24


def suits_onednn(rows: int, weight: Tensor) -> bool:
    """Check whether x W^T of `rows` rows x is faster in oneDNN."""
    plain = weight.dtype == torch.float32 and weight.device.type == "cpu"
    large = rows * weight.numel() >= LEAST_MULTIPLICATIONS
    traced = torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()
    return plain and large and not traced and asks_onednn()


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x W^T + b (R, O) of x (R, I) in oneDNN, without autograd; W may be transposed."""
    ask = torch.ops.mkldnn._linear_pointwise.default
    return ask(x.contiguous(), weight, bias, "none", [], "")


class FastLinear(nn.Linear):
    """`nn.Linear` that picks the faster library.

    Attributes:
        quantized: the map in fewer bits, for writing and scoring; None for the weights as they are.
        stored: W as its file has it, in place of the weight; see `low_rank.keep_stored`.
    """

    quantized: QuantizedMap | None = None
    stored: Tensor | BlockMatrix | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.quantized is not None:
            return self.quantized.over(x)
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x W^T + b (..., O) of x (..., I), differentiable."""
    rows = x.numel() // x.shape[-1]
    large = rows * weight.numel() >= LEAST_OF_SEQUENCES
    if large and x.dtype == weight.dtype and suits_onednn(rows, weight):
        return _Linear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


def frozen_linear(x: Tensor, weight: Tensor | BlockMatrix, bias: Tensor | None) -> Tensor:
    """Compute x W^T + b (..., O) of x (..., I), differentiable in x alone.

    W may be of another floating-point type than x, or in blocks; it is converted for the product
    and kept as it is for the gradient.
    """
    kind = x.dtype
    if torch.is_autocast_enabled(x.device.type):
        kind = torch.get_autocast_dtype(x.device.type)
    bias = None if bias is None else bias.detach().to(kind)
    weight = weight.detach() if isinstance(weight, Tensor) else weight
    return _FrozenLinear.apply(x, weight, bias, kind)


def numbers_of(weight: Tensor | BlockMatrix, kind: torch.dtype) -> Tensor:
    """Convert a matrix to a floating-point type."""
    if isinstance(weight, BlockMatrix):
        weight = torch.from_numpy(np.asarray(weight))
    return weight.to(kind)


class _Reused(threading.local):
    numbers = np.empty(0, np.float32)


_reused = _Reused()


def _for_product(weight: Tensor | BlockMatrix, kind: torch.dtype) -> Tensor:
    """Convert a matrix for one product: on a CPU into memory that the thread's next one reuses.

    If it were freed instead, smaller results that last would take parts of it, and the next matrix
    would need more.
    """
    blocks, size = isinstance(weight, BlockMatrix), math.prod(weight.shape)
    plain = not blocks and (weight.dtype == kind or not weight.is_cpu)
    if plain or kind != torch.float32 or torch.compiler.is_compiling():
        return numbers_of(weight, kind)
    if _reused.numbers.size < size:
        _reused.numbers = np.empty(size, np.float32)
    numbers = _reused.numbers[:size].reshape(weight.shape)
    if blocks:
        return torch.from_numpy(weight.fill(numbers))
    return torch.from_numpy(numbers).copy_(weight)


class _FrozenLinear(Function):
    """Autograd function x W^T + b that keeps nothing but W."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | BlockMatrix,
        bias: Tensor | None,
        kind: torch.dtype,
    ) -> Tensor:
        ctx.weight, ctx.kind = weight, x.dtype  # not saved: computing x again can end before this
        return linear(x.to(kind), _for_product(weight, kind), bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        d_x = linear(d_y, _for_product(ctx.weight, d_y.dtype).T, None)
        return d_x.to(ctx.kind), None, None, None


class _Linear(Function):
    """Autograd function x W^T + b with oneDNN products in both passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        ctx.shape = x.shape
        ctx.save_for_backward(flat, weight)
        bias = None if bias is None else bias.detach()
        return product(flat, weight.detach(), bias).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        d_y = d_y.reshape(-1, d_y.shape[-1])
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            product(d_y, weight.T).view(ctx.shape) if of_x else None,
            product(d_y.T, x.T) if of_weight else None,
            d_y.sum(0) if of_bias else None,
        )


def quantize_linear_layers(model: nn.Module, precision: str) -> None:
    """Quantize the weights of every `FastLinear` to a key of `QUANTIZED`; they are frozen.

    The head may be kept in more of them (`OF_HEAD`).

    Weights that nothing else reads, as an embedding reads those of a head tied to it, are let go.
    In their place is one number, of their shape and type: not a number, so that no mistake is
    silent.
    """
    layers = [module for module in model.modules() if isinstance(module, FastLinear)]
    others = [module for module in model.modules() if not isinstance(module, FastLinear)]
    read = {id(p) for module in others for p in module.parameters(recurse=False)}
    for layer in layers:
        kind = OF_HEAD.get(precision, precision) if layer is model.head else precision
        layer.quantized = QUANTIZED[kind](layer.weight, layer.bias)
        weight = layer._parameters.get("weight")  # none where it is computed, as with adapters
        if weight is not None and id(weight) not in read:
            nothing = weight.new_full((1, 1), math.nan).expand(weight.shape)
            layer.weight = nn.Parameter(nothing, requires_grad=False)


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + eps) * weight.

    On a CPU torch has no fused gradient for it, and half of its time goes to intermediate
    results, so there training takes the one below.
    """

    def forward(self, x: Tensor) -> Tensor:
        # Not in less than the weights' type, for which torch has no kernel that is fused.
        x = x.to(torch.promote_types(x.dtype, self.weight.dtype))
        if trains_on_cpu(x):
            return Normalisation.apply(x, self.weight, self.eps)
        return super().forward(x)


class Normalisation(Function):
    """Autograd function y = w * x / sqrt(mean(x^2) + eps), in float32 or wider.

    Its gradients: dw = sum(u * dy), dx = (w * dy - u mean(w * u * dy)) / rms.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Compute y of x (..., H) and weight (H,)."""
        ctx.kind = x.dtype
        x = x.to(torch.promote_types(x.dtype, torch.float32)).contiguous()
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # (..., 1)
        scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()  # 1 / rms
        u = x * scale
        y = u * weight
        # An adapted map keeps y anyway, and u follows from it. A GPU would have to be waited for.
        frozen = weight.is_cpu and not ctx.needs_input_grad[1]
        ctx.keeps_y = frozen and bool(weight.all())
        ctx.save_for_backward(y if ctx.keeps_y else u, scale, weight)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        u, scale, weight = ctx.saved_tensors
        u = u / weight if ctx.keeps_y else u
        size = u.shape[-1]
        products = (u * d_y).view(-1, size)
        mean = (products @ (weight / size)).view(scale.shape)
        d_x = torch.mul(d_y, weight).addcmul_(u, mean, value=-1).mul_(scale)
        return d_x.to(ctx.kind), products.sum(0), None


def trains_on_cpu(x: Tensor) -> bool:
    """Check whether x needs gradients on a CPU, where hand-written ones are faster.

    A compiler fuses what automatic differentiation records better than what is written out.
    """
    compiling = torch.compiler.is_compiling()
    return torch.is_grad_enabled() and x.device.type == "cpu" and not compiling
