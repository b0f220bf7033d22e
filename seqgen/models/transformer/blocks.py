"""The blocks of a transformer: attention, feed-forward layers, and the norms around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from seqgen.models.dropout import Dropout
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.engines.tensor_ops import TensorOps
from seqgen.models.transformer.config import TransformerConfig
from seqgen.models.transformer.equations import (
    ACTIVATIONS,
    Attend,
    BlockStack,
    Heads,
    attention,
    block,
    feed_forward,
)
from seqgen.models.transformer.rms_norm import RMSNorm


class Attention(nn.Module):
    """See `equations.attention`."""

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.heads, size = Heads.of(config, index), config.hidden_size
        widths, bias = self.heads.widths, config.bias or config.qkv_bias
        self.query_key_value = Linear(size, sum(widths), bias=bias)
        self.query_key_value.maps = {"weight": widths}
        self.output = Linear(widths[0], size, bias=config.bias)
        self.query_norm, self.key_norm = head_norm(config), head_norm(config)

    def forward(self, x: Tensor, rotation: Tensor | None, attend: Attend) -> Tensor:
        return attention(TensorOps, self, self.heads, x, rotation, attend)


class FeedForward(nn.Module):
    """See `equations.feed_forward`.

    Args:
        size: the width of x.
        inner: the width between the two maps.
        activation: a name of `ACTIVATIONS`.
        bias: whether the maps add a bias.
    """

    def __init__(self, size: int, inner: int, activation: str, bias: bool) -> None:
        super().__init__()
        self.activation, gated = activation, ACTIVATIONS[activation][1]
        self.inner = Linear(size, (1 + gated) * inner, bias=bias)
        self.inner.maps = {"weight": (inner,) * (1 + gated)}
        self.output = Linear(inner, size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return feed_forward(TensorOps, self, self.activation, x)


class Block(nn.Module):
    """See `equations.block`.

    Attributes:
        called_whole: training uses its parameters in its forward pass alone.
        cross: what reads a source, in a decoder's block.
    """

    called_whole: ClassVar[bool] = True

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.pre, self.cross = config.norm_position == "pre", None
        self.attention = Attention(config, index)
        sizes = config.hidden_size, config.feed_forward_size
        self.feed_forward = FeedForward(*sizes, config.activation, config.bias)
        self.attention_norm, self.feed_forward_norm = norm_of(config), norm_of(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, rotation: Tensor | None, attend: Attend) -> Tensor:
        return block(self, x, rotation, attend)


def fill_stack(
    stack: BlockStack,
    config: TransformerConfig,
    block: Callable[[TransformerConfig, int], nn.Module],
    layers: int,
    window: int,
) -> None:
    """Give a stack new blocks, and what stands around them, for `window` positions.

    At first each block reads the one below it alone: so begin the w_ij of `equations.stream`.
    """
    if config.positions == "learned":
        stack.position_embedding = nn.Embedding(window, config.position_width)
    stack.embedding_norm = norm_of(config) if config.embedding_norm else nn.Identity()
    stack.blocks = nn.ModuleList(block(config, i) for i in range(layers))
    depths = (torch.eye(i + 2)[-1] for i in range(layers if config.dense else 0))
    stack.depth = nn.ParameterList(depths)
    stack.final_norm = norm_of(config) if config.norm_position == "pre" else nn.Identity()
    stack.dropout = Dropout(config.dropout)


def head_norm(config: TransformerConfig) -> nn.Module:
    """Return the normalisation of queries, or of keys."""
    if config.qk_norm:
        return RMSNorm(config.head_width, eps=config.norm_eps)
    return nn.Identity()


def norm_of(config: TransformerConfig) -> nn.Module:
    """Return the normalisation of the residual stream."""
    if config.norm == "rmsnorm":
        return RMSNorm(config.hidden_size, eps=config.norm_eps)
    return nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.bias)
