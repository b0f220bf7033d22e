"""The equations of a transformer, over arrays or tensors.

A part `p` is a torch module or a namespace (`array_model.py`) whose maps take what `ops` is for.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from seqgen.models.engines.ops import Leaf, Ops, ops_of
from seqgen.models.transformer.config import TransformerConfig
from seqgen.models.transformer.positions import rotate

# (layer, queries, keys, values), each (B, heads, T, D), to what the queries read (B, heads, T, D);
# keys and values may have fewer heads.
Attend = Callable[[int, Leaf, Leaf, Leaf], Leaf]
# phi of a feed-forward layer, an operation, and whether a second map of x multiplies it.
ACTIVATIONS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gelu-exact": ("gelu_exact", False),
    "geglu": ("gelu", True),
    "silu": ("silu", False),
    "swiglu": ("silu", True),
}


@dataclass(frozen=True)
class Heads:
    """What the equations of attention need to know.

    Attributes:
        index: of the layer.
        numbers: of heads of Q, K and V.
        width: D of a head.
        gain: what queries are multiplied by before they meet keys.
        phi: the operation on queries, keys and values; None leaves them linear.
    """

    index: int
    numbers: tuple[int, int, int]
    width: int
    gain: float
    phi: str | None

    @classmethod
    def of(cls, config: TransformerConfig, index: int) -> Heads:
        """Return what a layer of a configuration has."""
        numbers = config.num_heads, config.kv_heads, config.kv_heads
        return cls(index, numbers, config.head_width, query_gain(config), config.qkv_activation)

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths of all heads of Q, K and V."""
        return tuple(number * self.width for number in self.numbers)

    def activated(self, ops: Ops, x: Leaf) -> Leaf:
        """Return phi(x)."""
        return x if self.phi is None else getattr(ops, self.phi)(x)

    def amplified(self, q: Leaf) -> Leaf:
        """Return the queries that meet keys."""
        return q if self.gain == 1 else q * self.gain


def query_gain(config: TransformerConfig) -> float:
    """Return what queries are multiplied by before they meet keys.

    Whatever attends divides by sqrt(D), so without that scale queries are sqrt(D) times as large.
    """
    return 1.0 if config.scale_attention else math.sqrt(config.head_width)


def apart(x: Leaf, heads: int) -> Leaf:
    """Return x (B, T, heads D) as (B, heads, T, D)."""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def together(x: Leaf) -> Leaf:
    """Return x (B, heads, T, D) as (B, T, heads D)."""
    x = x.swapaxes(1, 2)
    return x.reshape(*x.shape[:2], -1)


def attention(
    ops: Ops, p: Any, heads: Heads, x: Leaf, rotation: Leaf | None, attend: Attend
) -> Leaf:
    """Return softmax(Q K^T / sqrt(D)) V over several heads (Vaswani et al. 2017, section 3.2)."""
    parts = ops.split(heads.activated(ops, p.query_key_value(x)), *heads.widths)
    q, k, v = (apart(part, number) for part, number in zip(parts, heads.numbers, strict=True))
    q, k = p.query_norm(q), p.key_norm(k)  # (B, heads, T, D)
    if rotation is not None:
        q, k = rotate(q, rotation), rotate(k, rotation)
    return p.output(together(attend(heads.index, heads.amplified(q), k, v)))


def seen_from(queries: Leaf, keys: Leaf, span: int | None) -> Leaf:
    """Return which keys (n) each query (T) sees, (T, n): none after it, and the last `span`."""
    seen = keys <= queries[:, None]
    return seen if span is None else seen & (keys > queries[:, None] - span)


def full_weights(q: Leaf, k: Leaf, there: Leaf | None) -> Leaf:
    """Return the weights (B, heads, T, L) of attention.

    Args:
        q: queries (B, heads, T, D).
        k: keys (B, heads, L, D).
        there: what each query sees, of a shape that fits the weights'; None where each sees all.
    """
    ops, scores = ops_of(q), (q @ k.swapaxes(-1, -2)) / math.sqrt(q.shape[-1])
    return ops.softmax(scores if there is None else ops.where(there, scores, -math.inf))


def feed_forward(ops: Ops, p: Any, activation: str, x: Leaf) -> Leaf:
    """Return W2 phi(W1 x), or W2 (phi(W1 x) * W3 x) for the gated forms (Shazeer 2020)."""
    phi, gated = ACTIVATIONS[activation]
    inner = p.inner(x)
    if not gated:
        return p.output(getattr(ops, phi)(inner))
    gate, up = ops.split(inner, 1, 1)
    return p.output(getattr(ops, phi)(gate) * up)


def block(p: Any, x: Leaf, rotation: Leaf | None, attend: Attend) -> Leaf:
    """Return what a block makes of the stream x (B, T, H).

    Attention, in a decoder what is read of the source, and the feed-forward layer, each as
    x + part(norm(x)); or norm(x + part(x)), as in 2017.
    """
    x = _residual(p, p.attention_norm, lambda y: p.attention(y, rotation, attend), x)
    if p.cross is not None:
        x = _residual(p, p.cross_norm, lambda y: p.cross(y, attend), x)
    return _residual(p, p.feed_forward_norm, p.feed_forward, x)


class BlockStack:
    """Blocks one above the other, and what stands around them, over arrays or tensors."""

    ops: ClassVar[Ops]
    position_embedding: Callable[[Leaf], Leaf]
    embedding_norm: Callable[[Leaf], Leaf]
    blocks: Iterable[Callable[[Leaf, Leaf | None, Attend], Leaf]]
    depth: Sequence[Leaf]
    final_norm: Callable[[Leaf], Leaf]
    dropout: Callable[[Leaf], Leaf]


def stream(p: Any, x: Leaf, rotation: Leaf | None, attend: Attend) -> Iterator[Leaf]:
    """Yield the stream (B, T, H) after each block of a stack p, which x enters.

    With dense connections, what follows block i is y_i = sum_{j <= i} w_ij x_j: x_0 enters the
    stack, and x_j is what block j makes of y_{j-1} (Pagliardini et al. 2024, "DenseFormer").
    """
    below = [x]
    for i, layer in enumerate(p.blocks):
        x = layer(x, rotation, attend)
        if p.config.dense:
            below.append(x)
            x = functools.reduce(operator.add, map(operator.mul, below, p.depth[i]))
        yield x


def _residual(p: Any, norm: Callable[[Leaf], Leaf], part: Callable[[Leaf], Leaf], x: Leaf) -> Leaf:
    if p.pre:
        return x + p.dropout(part(norm(x)))
    return norm(x + p.dropout(part(x)))


def placed(
    ops: Ops, config: TransformerConfig, x: Leaf, positions: Leaf
) -> tuple[Leaf, Leaf | None]:
    """Return what blocks read, (B, T, H), and how RoPE turns it, ([B,] T, 2, D / 2).

    Args:
        ops: of both.
        config: of the model.
        x: the vectors of tokens, (B, T, E).
        positions: the vectors, or rotations, of their positions, ([B,] T, ...).
    """
    if config.scale_embedding:
        x = x * math.sqrt(config.hidden_size)
    if config.positions == "rope":
        return x, positions
    positions = ops.like(positions, x)
    if config.position_size is None:
        return x + positions, None
    return ops.join(x, ops.expand(positions, *x.shape[:-1], positions.shape[-1])), None
