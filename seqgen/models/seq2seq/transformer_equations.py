"""Encoder-decoder transformer, over arrays or tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seqgen.engines.arrays import attend_to_all
from seqgen.engines.ops import Leaf
from seqgen.engines.parts import Linear, NestedPart, Part, Piece, Pieces
from seqgen.errors import SeqgenError
from seqgen.models.seq2seq.from_source import FromSource, require_memory
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.state import Rows
from seqgen.models.transformer.context import AnchoredContext
from seqgen.models.transformer.equations import (
    Attend,
    Block,
    add_positions,
    apply_qkv_activation,
    apply_query_gain,
    block_outputs,
    head_norm,
    merge_heads,
    softmax_weights,
    split_heads,
    stack_pieces,
    sublayer_norms,
)
from seqgen.models.transformer.kv_cache import KVCache
from seqgen.models.transformer.positions import position_waves, sinusoids

if TYPE_CHECKING:
    from seqgen.models.seq2seq.settings import Seq2SeqTransformerConfig
    from seqgen.models.transformer.settings import TransformerConfig


@dataclass
class MemoryCache(KVCache):
    """KV cache of the target and memory of the source.

    Attributes:
        memory: with a row for each of the cache's.
    """

    memory: Memory | None = None

    def select(self, rows: Rows) -> MemoryCache:
        rows = list(rows)
        memory = self.memory.select(rows)
        selected = super().select(rows)
        selected.memory = memory
        return selected

    @classmethod
    def cat(cls, states: Sequence[MemoryCache]) -> MemoryCache:
        memory = Memory.cat([state.memory for state in states])
        return dataclasses.replace(super().cat(states), memory=memory)


@dataclass(frozen=True)
class CrossAttend:
    """Attention callback of a decoder: self-attention, and cross-attention to a memory.

    Attributes:
        self_attend: the callback for the past.
        memory: with a row for each of the queries'.
        attend_to_all: see `SourceBlocks`.
    """

    self_attend: Attend
    memory: Memory
    attend_to_all: Callable[[Leaf, Leaf, Leaf, Leaf | None], Leaf]

    def __call__(self, layer: int, q: Leaf, k: Leaf, v: Leaf) -> Leaf:
        return self.self_attend(layer, q, k, v)

    def source(self, layer: int, q: Leaf) -> Leaf:
        """Attend from queries (B, heads, T, D) to their sources; return (B, heads, T, D)."""
        memory = self.memory
        grouped = memory.group(q).swapaxes(1, 2)  # (S, heads, G, T, D)
        asked = grouped.reshape(*grouped.shape[:2], -1, q.shape[-1])  # (S, heads, G T, D)
        read = self.attend_to_all(asked, memory.keys[layer], memory.values[layer], memory.there)
        return memory.ungroup(read.reshape(grouped.shape).swapaxes(1, 2))


class SourceAttention(Part):
    """Cross-attention: softmax(Q K^T / sqrt(D)) V, Q of the target, K and V of the source.

    K and V are made once a source, by `remember`.
    """

    config: TransformerConfig
    index: int

    def pieces(self, config: TransformerConfig, index: int) -> Pieces:
        self.config, self.index = config, index
        size, width = config.hidden_size, config.qkv_widths[0]
        return {
            "query": Linear(size, width, config.bias),
            "key_value": Linear(size, 2 * width, config.bias, (width, width)),
            "output": Linear(width, size, config.bias),
            "query_norm": head_norm(config, width),
            "key_norm": head_norm(config, width),
        }

    def remember(self, encoded: Leaf) -> tuple[Leaf, Leaf]:
        """Compute the keys and values (S, heads, L, D) of encoder features (S, L, H)."""
        pair = apply_qkv_activation(self.ops, self.config, self.key_value(encoded))
        k, v = (split_heads(x, self.config.head_width) for x in self.ops.split(pair, 1, 1))
        return self.key_norm(k), v

    def run(self, x: Leaf, attend: CrossAttend) -> Leaf:
        """Attend from the residual stream x (B, T, H) to the sources."""
        q = apply_qkv_activation(self.ops, self.config, self.query(x))
        q = self.query_norm(split_heads(q, self.config.head_width))
        read = attend.source(self.index, apply_query_gain(self.config, q))
        return self.output(merge_heads(read))


class DecoderBlock(Block):
    """Transformer block with cross-attention between self-attention and feed-forward layer."""

    called_whole = False  # the memory is made with its maps before it is called

    def pieces(self, config: TransformerConfig, index: int) -> Pieces:
        reading = {
            "cross": NestedPart(SourceAttention, config, index),
            **sublayer_norms("cross", config),
        }
        return super().pieces(config, index) | reading


class ContextFromSource(AnchoredContext, FromSource):
    """Transformer decoder with a sliding window and cross-attention to a source."""

    config: Seq2SeqTransformerConfig
    kind = DecoderBlock

    @staticmethod
    def encoder_of(config: Seq2SeqTransformerConfig) -> Piece:
        """Return the encoder as a piece of the model."""
        return NestedPart(SourceBlocks, config, config.source_inputs(config.embedding_width))

    encoder: SourceBlocks
    blocks: Iterable[Any]

    def encode(self, values: Leaf, lengths: Sequence[int]) -> Memory:
        encoded, first = self.encoder(values, lengths)
        pairs = (block.cross.remember(encoded) for block in self.blocks)
        keys, values = zip(*pairs, strict=True)
        return Memory(keys, values, first, list(lengths), list(range(len(lengths))))

    def start(self, memory: Memory, stride: int | None = None) -> MemoryCache:
        rows = len(require_memory(memory).owners)
        state = MemoryCache(**vars(super().start(rows, stride)), memory=memory)
        if self.config.decoder_start is not None:
            self.read(self.before_text(rows), state)
        return state

    def before_text(self, rows: int) -> Leaf:
        """Return the decoder's start tokens, (rows, 1), or (rows, 0) without one."""
        token = self.config.decoder_start
        return self.ops.ints(self.like, [[] if token is None else [token]] * rows)

    def attend(self, tokens: Leaf, memory: Memory) -> Leaf:
        first = self.before_text(len(tokens))
        weights = super().attend(self.ops.along(1, first, tokens), memory)
        return weights[:, :, :, first.shape[1] :]

    def attend_in_window(self, tokens: Leaf, memory: Memory) -> Leaf:
        every = []

        def attend_to_all(q: Leaf, k: Leaf, v: Leaf, there: Leaf | None) -> Leaf:
            weights = softmax_weights(q, k, None if there is None else there[:, None, None])
            grouped = weights.reshape(*q.shape[:2], -1, tokens.shape[1], weights.shape[-1])
            every.append(memory.ungroup(grouped.swapaxes(1, 2)))  # (B, heads, T, L)
            return weights @ v

        reading = CrossAttend(self.attend_within, memory, attend_to_all)
        self.stacked(*self.in_window(tokens), reading)
        return self.ops.stack(1, *every)

    def attending(self, attend: Attend, state: MemoryCache, rows: Sequence[int]) -> CrossAttend:
        return CrossAttend(attend, state.memory.select(rows), self.encoder.attend_to_all)


class SourceBlocks(Part):
    """Transformer encoder: blocks without a causal mask over a source."""

    config: Seq2SeqTransformerConfig
    checkpointing: bool = False

    def pieces(self, config: Seq2SeqTransformerConfig, inputs: Piece) -> Pieces:
        """List the blocks, input layer, positions and norms of the encoder.

        Args:
            config: of the model.
            inputs: makes vectors (S, L, E) of the source's values, E being `embedding_width`.
        """
        self.config, layers = config, config.encoder_layers or config.num_layers
        return {"inputs": inputs, **stack_pieces(config, Block, layers, config.source_window)}

    def attend_to_all(self, q: Leaf, k: Leaf, v: Leaf, there: Leaf | None) -> Leaf:
        """Attend from queries (S, heads, N, D) to all keys and values (S, heads, L, D).

        Args:
            q: the queries.
            k: the keys.
            v: the values.
            there: which places a source has, (S, L); None for all.
        """
        if isinstance(q, np.ndarray):
            return attend_to_all(q, k, v, there)
        from seqgen.models.transformer.attention import full_attention

        dropout = self.config.attention_dropout if self.training else 0.0
        return full_attention(q, k, v, there, dropout)

    def run(self, values: Leaf, lengths: Sequence[int]) -> tuple[Leaf, tuple[()]]:
        """Encode sources; return features and no final states.

        Args:
            values: (S, L) of int64, or (S, L, F), padded on the right.
            lengths: S of them.

        Returns:
            Features (S, L, H), which mean nothing past a source's end; and no first states.

        Raises:
            SeqgenError: positions are learned, and there are none so far from the beginning.
        """
        ops, size, there = self.ops, values.shape[1], None
        if min(lengths) < size:
            there = ops.count(values, size) < ops.ints(values, lengths)[:, None]  # (S, L)
        return self.read(values, there), ()

    def read(self, values: Leaf, there: Leaf | None) -> Leaf:
        """Compute features (S, L, H) of values, with mask `there` (S, L) or None."""
        return self.layers(values, there)[-1]

    def layers(self, values: Leaf, there: Leaf | None) -> list[Leaf]:
        """Compute every block's output (S, L, H), the last normalised; see `read`."""
        return self.layers_by(values, lambda _, q, k, v: self.attend_to_all(q, k, v, there))

    def layers_by(self, values: Leaf, attend: Attend) -> list[Leaf]:
        """Compute every block's output as `layers` does, with an attention callback."""
        x, rotation = self._embedded(values)
        *features, x = block_outputs(self, x, rotation, attend)
        return [*features, self.final_norm(x)]

    def _embedded(self, values: Leaf) -> tuple[Leaf, Leaf | None]:
        """Embed values: the blocks' input (S, L, H) and RoPE's rotations or None."""
        x, rotation = self._placed(self.inputs(values))
        return self.dropout(self.embedding_norm(x)), rotation

    def _placed(self, x: Leaf) -> tuple[Leaf, Leaf | None]:
        """Add positions to vectors x (S, L, E): (S, L, H) and RoPE's rotations or None."""
        ops, config, size = self.ops, self.config, x.shape[1]
        if config.positions == "learned":
            if size > config.source_window:
                raise SeqgenError(
                    f"a source has {size} tokens, and this model has learned "
                    f"{config.source_window} positions; give shorter ones"
                )
            vectors = self.position_embedding(ops.count(x, size))
        else:
            vectors = ops.like(position_waves(ops, config, size), x)
        x, rotation = add_positions(ops, config, x, vectors)
        if rotation is not None and config.source_features is not None:
            # Rotations encode only distances. A text has an end token to measure them from; vectors
            # have none, so the cells of a grid would not know their place.
            x = x + ops.like(sinusoids(ops, size, config.hidden_size), x)
        return x, rotation
