"""Equations of a transformer, over arrays or tensors.

Each `Part` is over what its `ops` are for.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from seqgen.engines.ops import Leaf, Ops, ops_of
from seqgen.engines.parts import (
    DropoutPiece,
    Linear,
    NestedPart,
    Norm,
    Numbers,
    Part,
    Piece,
    Pieces,
    Stack,
    Table,
)
from seqgen.models.transformer.positions import rotate

if TYPE_CHECKING:
    from seqgen.models.transformer.settings import TransformerConfig

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


def query_gain(config: TransformerConfig) -> float:
    """Compute the query factor: sqrt(D) for a model that does not scale attention, else 1.

    Whatever attends divides by sqrt(D), so without that scale queries are sqrt(D) times as large.
    """
    return 1.0 if config.scale_attention else math.sqrt(config.head_width)


def apply_query_gain(config: TransformerConfig, q: Leaf) -> Leaf:
    """Multiply queries by their gain."""
    gain = query_gain(config)
    return q if gain == 1 else q * gain


def apply_qkv_activation(ops: Ops, config: TransformerConfig, x: Leaf) -> Leaf:
    """Apply the activation of queries, keys and values, if there is any."""
    return x if config.qkv_activation is None else getattr(ops, config.qkv_activation)(x)


def split_heads(x: Leaf, width: int) -> Leaf:
    """Split heads: reshape x (B, T, heads D) to (B, heads, T, D), with D the width."""
    return x.reshape(*x.shape[:2], x.shape[-1] // width, width).swapaxes(1, 2)


def merge_heads(x: Leaf) -> Leaf:
    """Merge heads: reshape x (B, heads, T, D) to (B, T, heads D)."""
    x = x.swapaxes(1, 2)
    return x.reshape(*x.shape[:2], -1)


class Attention(Part):
    """Multi-head attention softmax(Q K^T / sqrt(D)) V (Vaswani et al. 2017, section 3.2)."""

    config: TransformerConfig
    index: int

    def pieces(self, config: TransformerConfig, index: int) -> Pieces:
        self.config, self.index, size = config, index, config.hidden_size
        widths, biased = config.qkv_widths, config.bias or config.qkv_bias
        return {
            "query_key_value": Linear(size, sum(widths), biased, widths),
            "output": Linear(widths[0], size, config.bias),
            "query_norm": head_norm(config, widths[0]),
            "key_norm": head_norm(config, widths[1]),
        }

    def run(self, x: Leaf, rotation: Leaf | None, attend: Attend) -> Leaf:
        config, x = self.config, self.query_key_value(x)
        parts = self.ops.split(apply_qkv_activation(self.ops, config, x), *config.qkv_widths)
        if config.qk_norm_whole:
            parts = self.query_norm(parts[0]), self.key_norm(parts[1]), parts[2]
        q, k, v = (split_heads(part, config.head_width) for part in parts)  # (B, heads, T, D)
        if not config.qk_norm_whole:
            q, k = self.query_norm(q), self.key_norm(k)
        rotation = layer_rotation(config, self.index, rotation)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        return self.output(merge_heads(attend(self.index, apply_query_gain(config, q), k, v)))


def layer_rotation(config: TransformerConfig, layer: int, rotation: Leaf | None) -> Leaf | None:
    """Choose a layer's rotation ([B,] T, 2, D / 2) from that of `position_waves`, if it has any."""
    if rotation is None or not config.has_positions(layer):
        return None
    if config.sliding_rope_theta is None:
        return rotation
    return rotation[..., :2, :] if config.span(layer) is None else rotation[..., 2:, :]


def causal_mask(queries: Leaf, keys: Leaf, span: int | None) -> Leaf:
    """Compute the causal mask (T, n), limited to the last `span` keys if it is given."""
    seen = keys <= queries[:, None]
    return seen if span is None else seen & (keys > queries[:, None] - span)


def softmax_weights(q: Leaf, k: Leaf, there: Leaf | None, softcap: float | None = None) -> Leaf:
    """Compute the attention weights (B, heads, T, L) by softmax.

    Args:
        q: queries (B, heads, T, D).
        k: keys (B, heads, L, D).
        there: what each query sees, of a shape that fits the weights'; None where each sees all.
        softcap: see `squash`.
    """
    ops, scores = ops_of(q), (q @ k.swapaxes(-1, -2)) / math.sqrt(q.shape[-1])
    scores = squash(scores, softcap)
    return ops.softmax(scores if there is None else ops.where(there, scores, -math.inf))


def squash(x: Leaf, cap: float | None) -> Leaf:
    """Squash numbers softly into -cap to cap (Gemma Team 2024, "Gemma 2", section 2)."""
    return x if cap is None else cap * ops_of(x).tanh(x / cap)


class FeedForward(Part):
    """Feed-forward layer W2 phi(W1 x), or gated W2 (phi(W1 x) * W3 x) (Shazeer 2020).

    Attributes:
        activation: a name of `ACTIVATIONS`.
    """

    activation: str

    def pieces(self, size: int, inner: int, activation: str, bias: bool) -> Pieces:
        """List the linear maps from width `size` to `inner` and back."""
        self.activation, widths = activation, (inner,) * (1 + ACTIVATIONS[activation][1])
        maps = Linear(size, sum(widths), bias, widths)
        return {"inner": maps, "output": Linear(inner, size, bias)}

    def run(self, x: Leaf) -> Leaf:
        inner, again = self.inner(x), getattr(self.output, "keeps_only_input", False)
        return self.ops.in_little_memory(self._out, inner) if again else self._out(inner)

    def _out(self, inner: Leaf) -> Leaf:
        phi, gated = ACTIVATIONS[self.activation]
        if not gated:
            return self.output(getattr(self.ops, phi)(inner))
        gate, up = self.ops.split(inner, 1, 1)
        return self.output(getattr(self.ops, phi)(gate) * up)


class Block(Part):
    """Transformer block: attention, optional cross-attention, and feed-forward layer.

    Attention, in a decoder what is read of the source, and the feed-forward layer, each as
    x + part(norm(x)); norm(x + part(x)), as in 2017; x + norm(part(x)); or with both norms.

    Attributes:
        called_whole: training uses its parameters in its forward pass alone.
    """

    called_whole: ClassVar[bool] = True

    def pieces(self, config: TransformerConfig, index: int) -> Pieces:
        self.post = config.norm_position == "post"
        sizes = config.hidden_size, config.feed_forward_size
        return {
            "attention": NestedPart(Attention, config, index),
            "feed_forward": NestedPart(FeedForward, *sizes, config.activation, config.bias),
            **sublayer_norms("attention", config),
            **sublayer_norms("feed_forward", config),
            "dropout": DropoutPiece(config.dropout),
            "cross": None,
        }

    def run(self, x: Leaf, rotation: Leaf | None, attend: Attend) -> Leaf:
        norms = self.attention_norm, self.attention_output_norm
        x = self._residual(*norms, lambda y: self.attention(y, rotation, attend), x)
        if self.cross is not None:
            norms = self.cross_norm, self.cross_output_norm
            x = self._residual(*norms, lambda y: self.cross(y, attend), x)
        norms = self.feed_forward_norm, self.feed_forward_output_norm
        return self._residual(*norms, self.feed_forward, x)

    def _residual(
        self,
        norm: Callable[[Leaf], Leaf],
        output_norm: Callable[[Leaf], Leaf],
        part: Callable[[Leaf], Leaf],
        x: Leaf,
    ) -> Leaf:
        if self.post:
            return norm(x + self.dropout(part(x)))
        return x + self.dropout(output_norm(part(norm(x))))


def sublayer_norms(sublayer: str, config: TransformerConfig) -> Pieces:
    """List the normalisations of a sublayer: of its input or residual sum, and of its output."""
    place, norm = config.norm_position, stream_norm(config)
    return {
        f"{sublayer}_norm": Piece() if place == "output" else norm,
        f"{sublayer}_output_norm": norm if place in ("output", "both") else Piece(),
    }


def head_norm(config: TransformerConfig, whole: int) -> Piece:
    """Return the normalisation of queries or keys, if there is any; `whole` is their width."""
    width = whole if config.qk_norm_whole else config.head_width
    return Norm("rmsnorm", width, config.norm_eps) if config.qk_norm else Piece()


def stream_norm(config: TransformerConfig) -> Piece:
    """Return the normalisation of the residual stream."""
    return Norm(config.norm, config.hidden_size, config.norm_eps, config.bias)


def block_outputs(p: Any, x: Leaf, rotation: Leaf | None, attend: Attend) -> Iterator[Leaf]:
    """Yield the residual stream (B, T, H) after each block of a stack p.

    With dense connections, what follows block i is y_i = sum_{j <= i} w_ij x_j: x_0 enters the
    stack, and x_j is what block j makes of y_{j-1} (Pagliardini et al. 2024, "DenseFormer").
    With `checkpointing`, training keeps only what enters a block, and computes the rest again.
    """
    below, recomputes = [x], p.checkpointing and p.training
    for i, layer in enumerate(p.blocks):
        inputs = x, rotation, attend
        x = p.ops.in_little_memory(layer, *inputs) if recomputes else layer(*inputs)
        if p.config.dense:
            below.append(x)
            x = functools.reduce(operator.add, map(operator.mul, below, p.depth[i]))
        yield x


def stack_pieces(config: TransformerConfig, kind: type[Block], layers: int, window: int) -> Pieces:
    """List the pieces of a stack of blocks for `window` positions.

    At first each block reads the one below it alone: so begin the w_ij of `block_outputs`.
    """
    learned, dense = config.positions == "learned", layers * config.dense
    return {
        "position_embedding": Table(window, config.position_width) if learned else None,
        "embedding_norm": stream_norm(config) if config.embedding_norm else Piece(),
        "blocks": Stack([NestedPart(kind, config, i) for i in range(layers)]),
        "depth": Stack([Numbers((i + 2,), lambda w: w[-1].fill_(1)) for i in range(dense)]),
        "final_norm": Piece() if config.norm_position == "post" else stream_norm(config),
        "dropout": DropoutPiece(config.dropout),
    }


def add_positions(
    ops: Ops, config: TransformerConfig, x: Leaf, positions: Leaf
) -> tuple[Leaf, Leaf | None]:
    """Add or join positions to embeddings: (B, T, H), and RoPE's rotations or None.

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
