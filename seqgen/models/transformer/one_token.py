"""A transformer for one token a row: its blocks over arrays, in fewer calls.

The equations of `Block` and `FeedForward` are theirs, called with parts that take arrays. That of
`Attention` is here a second time: a step has one query a row, so its tensors have no axis of
time, and what the first does with that axis (transposed, masked, turned by position) is most of
its text and none of this one's. Written once over both shapes, a step of six layers would take
twelve more calls to permute arrays with an axis of length one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.models.base import NeuralLanguageModel
from seqgen.models.engines.arrays import ArrayMap, attend, attend_each
from seqgen.models.engines.tensor_products import affine_of
from seqgen.models.transformer.blocks import unchanged
from seqgen.models.transformer.kv_cache import KVCache

if TYPE_CHECKING:
    from seqgen.models.transformer.blocks import Attention, Block, FeedForward

# (layer, query, key, value), each (B, heads, D), to what the query reads (B, heads, D); keys and
# values may have fewer heads.
Attend = Callable[[int, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class OneToken:
    """A model with a transformer's parts, in evaluation mode, whose weights do not change."""

    row_block: ClassVar[Callable[[Block], RowBlock]]

    def __init__(self, model: NeuralLanguageModel) -> None:
        config = model.config
        self.scale = math.sqrt(config.hidden_size) if config.scale_embedding else None
        self.embedding = model.embedding.weight.detach().numpy()
        self.added = self.waves = None
        if config.positions == "rope":
            self.waves = model.waves.numpy()
        elif config.positions == "learned":
            self.added = model.position_embedding.weight.detach().numpy()
        else:
            self.added = model.waves.numpy()
        self.concatenates = config.position_size is not None
        self.embedding_norm = over_arrays(model.embedding_norm)
        self.blocks = [self.row_block(block) for block in model.blocks]
        self.final_norm = over_arrays(model.final_norm)
        self.head, self.reduced = affine_of(model.head), model.reduced

    def __call__(self, tokens: Sequence[int], cache: KVCache) -> np.ndarray:
        """Read a token of each row, for which its window has room; return logits (B, V)."""
        cache.append(torch.tensor(tokens)[:, None])
        begin, end = min(cache.starts), cache.end
        positions, there = np.array([end - 1 - begin]), None
        if max(cache.starts) > begin:
            starts = np.array(cache.starts)
            positions = end - 1 - starts  # (B,)
            there = np.arange(begin, end) >= starts[:, None]  # (B, n)

        def read(layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
            keys, values = cache.keys[layer].numpy(), cache.values[layer].numpy()
            keys[:, :, end - 1], values[:, :, end - 1] = k, v
            if self.reduced is not None:  # whose rounding would magnify the least difference
                past = keys[:, :, begin:end], values[:, :, begin:end]
                return attend_each(q, *past, [start - begin for start in cache.starts])
            return attend(q, keys[:, :, begin:end], values[:, :, begin:end], there)

        x = self.embedding[list(tokens)]  # (B, H)
        if self.scale is not None:
            x *= self.scale
        if self.concatenates:
            vectors = self.added[positions]  # (B, P), or (1, P) for all rows
            x = np.hstack([x, np.broadcast_to(vectors, (len(x), vectors.shape[1]))])
        elif self.added is not None:
            x += self.added[positions]
        x = self.embedding_norm(x)
        rotation = None if self.waves is None else self.waves[positions][:, None]
        reading = self.attending(read, cache)
        for block in self.blocks:
            x = block(x, rotation, reading)
        return self.head(self.final_norm(x))

    def attending(self, attend: Attend, cache: KVCache) -> Attend:
        """Return what the blocks attend by; see `Transformer._attending`."""
        return attend


class RowBlock:
    """`Block`; the stream x (B, H) in and out."""

    def __init__(self, block: Block) -> None:
        self.equation = type(block).forward
        self.pre, self.dropout = block.pre, _unchanged
        self.attention = RowAttention(block.attention)
        self.feed_forward = RowFeedForward(block.feed_forward)
        self.attention_norm = over_arrays(block.attention_norm)
        self.feed_forward_norm = over_arrays(block.feed_forward_norm)

    def __call__(self, x: np.ndarray, rotation: np.ndarray | None, read: Attend) -> np.ndarray:
        """Take the stream to the next; rotation (B, 1, 2, D / 2), or one for all rows."""
        return self.equation(self, x, rotation, read)


OneToken.row_block = RowBlock  # defined below OneToken


class RowAttention:
    """`Attention` of x (B, H)."""

    def __init__(self, attention: Attention) -> None:
        self.index, self.heads = attention.index, attention.heads
        self.places = np.cumsum(attention.widths)[:-1]  # where K and V begin
        self.gain, self.phi = attention.gain, activation_over_arrays(attention.phi)
        self.query_key_value = affine_of(attention.query_key_value)
        self.output = affine_of(attention.output)
        self.query_norm = over_arrays(attention.query_norm)
        self.key_norm = over_arrays(attention.key_norm)

    def __call__(self, x: np.ndarray, rotation: np.ndarray | None, read: Attend) -> np.ndarray:
        parts = np.split(self.phi(self.query_key_value(x)), self.places, 1)
        q, k, v = (
            part.reshape(len(x), heads, -1) for part, heads in zip(parts, self.heads, strict=True)
        )  # (B, heads, D) each
        q, k = self.query_norm(q), self.key_norm(k)
        if rotation is not None:
            q, k = _rotated(q, rotation), _rotated(k, rotation)
        if self.gain != 1:
            q = q * self.gain
        return self.output(read(self.index, q, k, v).reshape(len(x), -1))


class RowFeedForward:
    """`FeedForward` of x (B, H)."""

    def __init__(self, feed_forward: FeedForward) -> None:
        self.equation = type(feed_forward).forward
        self.inner, self.output = affine_of(feed_forward.inner), affine_of(feed_forward.output)
        self._activate = feed_forward.activate

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.equation(self, x)

    def activate(self, inner: np.ndarray) -> np.ndarray:
        """Return `FeedForward.activate`'s work for arrays, by torch's fused functions."""
        return self._activate(torch.from_numpy(inner)).numpy()


def _unchanged(x: np.ndarray) -> np.ndarray:
    return x


def activation_over_arrays(phi: Callable[[Tensor], Tensor]) -> ArrayMap:
    """Return what one of `QKV_ACTIVATIONS` does to an array."""
    return _unchanged if phi is unchanged else lambda x: phi(torch.from_numpy(x)).numpy()


def _rotated(x: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """Return `rotate`'s work for x (B, heads, D)."""
    cos, sin = rotation[:, :, 0], rotation[:, :, 1]  # (B, 1, D / 2) each
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def over_arrays(norm: nn.Module) -> ArrayMap:
    """Return what a normalisation, or nothing in its place, does to an array (..., H)."""
    if isinstance(norm, nn.Identity):
        return _unchanged
    weight, eps = norm.weight.detach(), norm.eps
    if isinstance(norm, nn.LayerNorm):
        bias = None if norm.bias is None else norm.bias.detach()
        layer_norm = functools.partial(
            F.layer_norm, normalized_shape=weight.shape, weight=weight, bias=bias, eps=eps
        )
        return lambda x: layer_norm(torch.from_numpy(x)).numpy()
    gain, reciprocal = weight.numpy(), 1 / weight.numel()

    def rms_norm(x: np.ndarray) -> np.ndarray:
        scale = reciprocal * np.add.reduce(x * x, -1, keepdims=True)  # (..., 1)
        scale += eps
        y = x / np.sqrt(scale, out=scale)
        y *= gain
        return y

    return rms_norm
