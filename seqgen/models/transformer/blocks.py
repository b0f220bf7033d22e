"""The blocks of a transformer: attention, feed-forward layers, and the norms around them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.models.dropout import Dropout
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.transformer.config import TransformerConfig
from seqgen.models.transformer.positions import rotate
from seqgen.models.transformer.rms_norm import RMSNorm

# (layer, queries, keys, values), each (B, heads, T, D), to what the queries read (B, heads, T, D);
# keys and values may have fewer heads.
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


def unchanged(x: Tensor) -> Tensor:
    """Return x."""
    return x


# phi of queries, keys and values, by `qkv_activation`.
QKV_ACTIVATIONS = {
    None: unchanged,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": F.relu,
}


def query_gain(config: TransformerConfig) -> float:
    """Return what queries are multiplied by before they meet keys.

    Whatever attends divides by sqrt(D), so without that scale queries are sqrt(D) times as large.
    """
    return 1.0 if config.scale_attention else math.sqrt(config.head_width)


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(D)) V over several heads (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.index, size, width = index, config.hidden_size, config.head_width
        self.heads = (config.num_heads, config.kv_heads, config.kv_heads)  # of Q, K and V
        self.widths = tuple(heads * width for heads in self.heads)
        self.gain, self.phi = query_gain(config), QKV_ACTIVATIONS[config.qkv_activation]
        bias = config.bias or config.qkv_bias
        self.query_key_value = Linear(size, sum(self.widths), bias=bias)
        self.query_key_value.maps = {"weight": self.widths}
        self.output = Linear(self.widths[0], size, bias=config.bias)
        self.query_norm = self.key_norm = nn.Identity()
        if config.qk_norm:
            self.query_norm = RMSNorm(width, eps=config.norm_eps)
            self.key_norm = RMSNorm(width, eps=config.norm_eps)

    def forward(self, x: Tensor, rotation: Tensor | None, attend: Attend) -> Tensor:
        parts = self.phi(self.query_key_value(x)).split(self.widths, -1)
        q, k, v = (
            part.unflatten(-1, (heads, -1)).transpose(1, 2)
            for part, heads in zip(parts, self.heads, strict=True)
        )  # (B, heads, T, D) each
        q, k = self.query_norm(q), self.key_norm(k)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        if self.gain != 1:
            q = q * self.gain
        read = attend(self.index, q, k, v)  # (B, heads, T, D)
        return self.output(read.transpose(1, 2).flatten(2))


def gelu(x: Tensor) -> Tensor:
    """GPT-2's GELU, the tanh approximation of Hendrycks and Gimpel (2016)."""
    return F.gelu(x, approximate="tanh")


# phi of a feed-forward layer, and whether a second map of x multiplies it.
ACTIVATIONS = {
    "relu": (F.relu, False),
    "gelu": (gelu, False),
    "gelu-exact": (F.gelu, False),
    "geglu": (gelu, True),
    "silu": (F.silu, False),
    "swiglu": (F.silu, True),
}


class FeedForward(nn.Module):
    """W2 phi(W1 x), or W2 (phi(W1 x) * W3 x) for the gated forms (Shazeer 2020).

    Args:
        size: the width of x.
        inner: the width between the two maps.
        activation: a name of `ACTIVATIONS`.
        bias: whether the maps add a bias.
    """

    def __init__(self, size: int, inner: int, activation: str, bias: bool) -> None:
        super().__init__()
        self.phi, self.gated = ACTIVATIONS[activation]
        self.inner = Linear(size, (1 + self.gated) * inner, bias=bias)
        self.inner.maps = {"weight": (inner,) * (1 + self.gated)}
        self.output = Linear(inner, size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.activate(self.inner(x)))

    def activate(self, inner: Tensor) -> Tensor:
        """Return what stands between the two maps: inner (..., I) or (..., 2 I) to (..., I)."""
        if not self.gated:
            return self.phi(inner)
        gate, up = inner.chunk(2, dim=-1)
        return self.phi(gate) * up


class Block(nn.Module):
    """x + part(norm(x)) for attention and then feed-forward; or norm(x + part(x)), as in 2017.

    Attributes:
        called_whole: training uses its parameters in its forward pass alone.
    """

    called_whole: ClassVar[bool] = True

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.pre = config.norm_position == "pre"
        self.attention = Attention(config, index)
        sizes = config.hidden_size, config.feed_forward_size
        self.feed_forward = FeedForward(*sizes, config.activation, config.bias)
        self.attention_norm, self.feed_forward_norm = norm_of(config), norm_of(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, rotation: Tensor | None, attend: Attend) -> Tensor:
        if self.pre:
            x = x + self.dropout(self.attention(self.attention_norm(x), rotation, attend))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, rotation, attend)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


def norm_of(config: TransformerConfig) -> nn.Module:
    """Return the normalisation of the residual stream."""
    if config.norm == "rmsnorm":
        return RMSNorm(config.hidden_size, eps=config.norm_eps)
    return nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.bias)
