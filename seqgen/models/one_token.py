"""A transformer's blocks for one token a row: the sums of their modules, in far fewer calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.models.positions import rotate

if TYPE_CHECKING:
    from seqgen.models.transformer import Attend, Attention, Block, FeedForward


class RowAffine:
    """W x + b for a few rows, from a copy of the weights as they are now.

    W lies transposed, since a product with few rows then takes up to half less time (float32
    and BLAS on a CPU).
    """

    def __init__(self, linear: nn.Linear) -> None:
        self.weight = linear.weight.detach().T.contiguous()  # (I, O)
        self.bias = None if linear.bias is None else linear.bias.detach().clone()  # (O,)

    def __call__(self, x: Tensor) -> Tensor:
        """Return W x + b (B, O) of x (B, I)."""
        if self.bias is None:
            return torch.mm(x, self.weight)
        return torch.addmm(self.bias, x, self.weight)

    def onto(self, stream: Tensor, x: Tensor) -> Tensor:
        """Return stream + W x + b (B, O)."""
        if self.bias is not None:
            stream = stream + self.bias
        return torch.addmm(stream, x, self.weight)


class RowBlock:
    """`Block` in evaluation mode for one token a row; it is called as `Block` is."""

    def __init__(self, block: Block) -> None:
        self.pre = block.pre
        self.attention = RowAttention(block.attention)
        self.feed_forward = RowFeedForward(block.feed_forward)
        self.attention_norm = _without_module(block.attention_norm)
        self.feed_forward_norm = _without_module(block.feed_forward_norm)

    def __call__(self, x: Tensor, rotation: Tensor | None, attend: Attend) -> Tensor:
        """Take the stream (B, 1, H) to the next."""
        x = x[:, 0]
        if self.pre:
            x = self.attention(self.attention_norm(x), x, rotation, attend)
            x = self.feed_forward(self.feed_forward_norm(x), x)
        else:
            x = self.attention_norm(self.attention(x, x, rotation, attend))
            x = self.feed_forward_norm(self.feed_forward(x, x))
        return x[:, None]


class RowAttention:
    """`Attention`, added to the residual stream."""

    def __init__(self, attention: Attention) -> None:
        self.index, self.num_heads = attention.index, attention.num_heads
        self.query_key_value = RowAffine(attention.query_key_value)
        self.output = RowAffine(attention.output)
        self.query_norm = _without_module(attention.query_norm)
        self.key_norm = _without_module(attention.key_norm)

    def __call__(
        self, x: Tensor, stream: Tensor, rotation: Tensor | None, attend: Attend
    ) -> Tensor:
        """Return stream + attention(x), both (B, H)."""
        heads = self.query_key_value(x).view(len(x), 3, self.num_heads, 1, -1)
        q, k, v = heads.unbind(1)  # (B, heads, 1, D) each
        q, k = self.query_norm(q), self.key_norm(k)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        return self.output.onto(stream, attend(self.index, q, k, v).reshape(x.shape))


class RowFeedForward:
    """`FeedForward`, added to the residual stream."""

    def __init__(self, feed_forward: FeedForward) -> None:
        self.gated, self.phi = feed_forward.gated, feed_forward.phi
        self.inner, self.output = RowAffine(feed_forward.inner), RowAffine(feed_forward.output)

    def __call__(self, x: Tensor, stream: Tensor) -> Tensor:
        """Return stream + feed_forward(x), both (B, H)."""
        inner = self.inner(x)
        if self.gated:
            gate, up = inner.chunk(2, dim=-1)
            inner = self.phi(gate).mul_(up)
        else:
            inner = self.phi(inner)
        return self.output.onto(stream, inner)


def _without_module(norm: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return what a normalisation does, less what calling a module costs."""
    if isinstance(norm, nn.LayerNorm):
        shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    if isinstance(norm, nn.RMSNorm):
        shape, weight, eps = norm.normalized_shape, norm.weight, norm.eps
        return lambda x: F.rms_norm(x, shape, weight, eps)
    return norm.forward
