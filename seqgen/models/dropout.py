"""Dropout whose masks cost little on a CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

# Sixteen random bits decide about an element: p is met to within 1 / 65536.
LEVELS = 1 << 16


class Dropout(nn.Module):
    """Sets elements to zero with probability p in training, and scales the others to match.

    On a CPU torch draws one number an element, which takes a fifth of a training step; here one
    64-bit draw decides about four elements. The expectation is exact: what is kept is scaled by
    the probability that the sixteen bits really have.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        dropped = min(round(self.p * LEVELS), LEVELS - 1)
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        # Values above the threshold survive; clamp turns the comparison into a 0/1 mask without
        # a branch.
        wide = torch.promote_types(x.dtype, torch.float32)
        kept = bits.to(wide).sub_(dropped - LEVELS // 2 - 1).clamp_(0, 1)
        # The product is rounded to bf16, never the scale: that would be off the same way for
        # every element.
        return (x * kept.mul_(LEVELS / (LEVELS - dropped))).to(x.dtype)

    def extra_repr(self) -> str:
        return f"p={self.p}"
