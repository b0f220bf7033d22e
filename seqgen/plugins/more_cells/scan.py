"""Parallel scan of recurrences that are linear in their past (Blelloch 1990)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def linear_scan(a: Tensor, b: Tensor, first: Tensor) -> Tensor:
    """Compute every h_t = a_t * h_{t-1} + b_t (T, B, H) by a parallel scan.

    Args:
        a: (T, B, H).
        b: (T, B, H).
        first: the h before (B, H).
    """
    return _LinearScan.apply(a, b, first.to(b.dtype))


class _LinearScan(Function):
    """Autograd function of the scan; its gradient is a backward scan of d_y."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, first: Tensor) -> Tensor:
        states = _scan(a, b, first)
        ctx.save_for_backward(a, states, first)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor, ...]:
        a, states, first = ctx.saved_tensors
        after = torch.cat([a[1:], torch.zeros_like(a[:1])])
        d_b = _scan(after.flip(0), d_y.flip(0), torch.zeros_like(first)).flip(0)
        before = torch.cat([first[None], states[:-1]])
        return d_b * before, d_b, d_b[0] * a[0]


def _scan(a: Tensor, b: Tensor, first: Tensor) -> Tensor:
    """Scan chunks of sqrt(T) steps in parallel, then join them: 2 sqrt(T) sequential steps.

    Within a chunk h_t = within_t + through_t * h, where h is what the chunk begins from.
    """
    length = len(a)
    size = math.isqrt(length - 1) + 1
    more = -length % size
    a, b = (F.pad(x, (0, 0, 0, 0, 0, more)).unflatten(0, (-1, size)) for x in (a, b))
    within, through = torch.empty_like(b), torch.empty_like(a)  # (chunks, size, B, H)
    within[:, 0], through[:, 0] = b[:, 0], a[:, 0]
    for t in range(1, size):
        torch.addcmul(b[:, t], a[:, t], within[:, t - 1], out=within[:, t])
        torch.mul(a[:, t], through[:, t - 1], out=through[:, t])
    begins = [first]
    for last, decay in zip(within[:-1, -1], through[:-1, -1], strict=True):
        begins.append(torch.addcmul(last, decay, begins[-1]))
    states = within.addcmul_(through, torch.stack(begins)[:, None])
    return states.flatten(0, 1)[:length]
