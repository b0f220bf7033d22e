"""The GRU over a whole sequence, with backpropagation through time written out (Werbos 1990).

Automatic differentiation records a dozen small operations a time step, which in bf16 makes a
training step of a GRU about a tenth slower than this. Here each direction does in its loop what
depends on the step before and nothing else: one matrix product, a few element-wise operations.
The rest is done for all T at once: the factors of the gradients, and the gradient of the
recurrent matrix, sum_t d_t h_{t-1}^T, as one product.

Inputs x come time first, W_ih and the bias already applied to them. Products are made in x's type
(bf16 under autocast); gates, states and their gradients are float32, or wider if x is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# (gradient, y) to the gradient of the argument whose sigma or tanh is y.
sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


class GRURecurrence(Function):
    """GRU with the reset gate after the product, as in cuDNN, over blocks r, z, n.

    a_t = W h_{t-1} + b
    r_t, z_t = sigma(x_t + a_t)
    n_t = tanh(x_t + r_t * a_t)
    h_t = (1 - z_t) * n_t + z_t * h_{t-1}
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, h: Tensor) -> Tensor:
        """Compute every h_t (T, B, H) from x (T, B, 3 H), W (3 H, H), b (3 H,) and h (B, H)."""
        size = h.shape[-1]
        gates, outputs = _wide(x), _starting_with(h, x)
        from_past = torch.empty_like(gates).copy_(bias)
        states = _starting_with(h, gates)
        for t, (gate, past) in enumerate(zip(gates, from_past, strict=True)):
            _add_product(past, outputs[t], weight.T)
            r_z, n = gate[:, : 2 * size], gate[:, 2 * size :]
            r_z.add_(past[:, : 2 * size]).sigmoid_()
            n.addcmul_(r_z[:, :size], past[:, 2 * size :]).tanh_()
            torch.lerp(n, states[t], r_z[:, size:], out=states[t + 1])
            outputs[t + 1] = states[t + 1]
        ctx.save_for_backward(weight, gates, from_past[..., 2 * size :], states, outputs)
        return outputs[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor, ...]:
        weight, gates, past_n, states, outputs = ctx.saved_tensors
        r, z, n = gates.chunk(3, -1)  # (T, B, H) each
        # What d_h_t is multiplied by, for the gradient of n_t's argument and of a_t's three parts.
        of_n = tanh_backward(1 - z, n)
        factors = torch.empty_like(gates)
        of_r, of_z, of_past_n = factors.chunk(3, -1)
        of_r.copy_(sigmoid_backward(of_n * past_n, r))
        of_z.copy_(sigmoid_backward(states[:-1] - n, z))
        torch.mul(of_n, r, out=of_past_n)
        factors = factors.unflatten(-1, (3, -1))  # (T, B, 3, H)
        d_a, d_h = torch.empty_like(gates, dtype=d_y.dtype), _wide(d_y)
        d_first = torch.zeros_like(d_h[0])
        for t in reversed(range(len(d_h))):
            d_a[t] = (factors[t] * d_h[t].unsqueeze(1)).flatten(1)
            before = d_h[t - 1] if t else d_first
            before.addcmul_(d_h[t], z[t])
            _add_product(before, d_a[t], weight)
        d_x = d_a.clone()
        d_x.chunk(3, -1)[2].copy_(of_n * d_h)
        d_weight = d_a.flatten(0, 1).T @ outputs[:-1].flatten(0, 1)  # sum_t d_a_t h_{t-1}^T
        return d_x, d_weight, d_a.sum((0, 1)), d_first


def _wide(x: Tensor) -> Tensor:
    """Copy a tensor to float32 or wider, so that it can be overwritten."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return x.to(wide, copy=True, memory_format=torch.contiguous_format)


def _starting_with(first: Tensor, like: Tensor) -> Tensor:
    """Allocate the states of all steps of `like` (T, B, ...) after `first` (B, H)."""
    states = like.new_empty(len(like) + 1, *first.shape)
    states[0] = first
    return states


def _add_product(total: Tensor, rows: Tensor, matrix: Tensor) -> None:
    """Add rows @ matrix to `total` in place, which may have a wider type."""
    if total.dtype == rows.dtype:
        total.addmm_(rows, matrix)
    else:
        total.add_(rows @ matrix)
