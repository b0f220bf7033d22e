"""Root mean square normalisation (Zhang and Sennrich 2019)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from seqgen.engines.precision import trains_on_cpu


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
    """y = w * u with u = x / rms and rms = sqrt(mean(x^2) + eps), in float32 or wider.

    Its gradients: dw = sum(u * dy), dx = (w * dy - u mean(w * u * dy)) / rms.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return y of x (..., H), for weight (H,)."""
        ctx.kind = x.dtype
        x = x.to(torch.promote_types(x.dtype, torch.float32)).contiguous()
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # (..., 1)
        scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()  # 1 / rms
        u = x * scale
        ctx.save_for_backward(u, scale, weight)
        return u * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        u, scale, weight = ctx.saved_tensors
        size = u.shape[-1]
        products = (u * d_y).view(-1, size)
        mean = (products @ (weight / size)).view(scale.shape)
        d_x = torch.mul(d_y, weight).addcmul_(u, mean, value=-1).mul_(scale)
        return d_x.to(ctx.kind), products.sum(0), None
