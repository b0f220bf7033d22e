"""The encoder-decoder transformer (Vaswani et al. 2017), from its first form to a recent one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from seqgen.errors import SeqgenError
from seqgen.models.dropout import Dropout
from seqgen.models.engines.arrays import attend_grouped
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.seq2seq.base import (
    EncoderDecoder,
    require_memory,
    source_input,
)
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.transformer_config import Seq2SeqTransformerConfig
from seqgen.models.state import Rows
from seqgen.models.transformer import one_token
from seqgen.models.transformer.attention import full_attention, full_weights
from seqgen.models.transformer.blocks import QKV_ACTIVATIONS, Attend, Block, norm_of, query_gain
from seqgen.models.transformer.config import TransformerConfig
from seqgen.models.transformer.kv_cache import KVCache
from seqgen.models.transformer.model import Transformer, initialise, waves_of
from seqgen.models.transformer.positions import sinusoids, with_positions
from seqgen.models.transformer.rms_norm import RMSNorm


@dataclass
class MemoryCache(KVCache):
    """The keys and values of what has been written, and the memory of what it is written from.

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


@dataclass(frozen=True)
class Reading:
    """What a decoder's blocks attend by: their own past, and a memory.

    Attributes:
        self_attend: the callback for the past.
        memory: with a row for each of the queries'.
        dropout: of the weights over the memory.
    """

    self_attend: Attend
    memory: Memory
    dropout: float = 0.0

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.self_attend(layer, q, k, v)

    def source(self, layer: int, q: Tensor) -> Tensor:
        """Return what queries (B, heads, T, D) read of their sources, (B, heads, T, D)."""
        grouped = self.memory.group(q)  # (S, G, heads, T, D)
        asked = grouped.transpose(1, 2).flatten(2, 3)  # (S, heads, G T, D)
        read = self._read(asked, self.memory.keys[layer], self.memory.values[layer])
        return self.memory.ungroup(read.unflatten(2, grouped.shape[1:4:2]).transpose(1, 2))

    def _read(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return full_attention(q, k, v, self.memory.there, self.dropout)


@dataclass(frozen=True)
class Recording(Reading):
    """A reading that keeps the weights.

    Attributes:
        weights: for each layer (S, heads, G T, L).
    """

    weights: list[Tensor] = field(default_factory=list)

    def _read(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        there = self.memory.there
        seen = None if there is None else there[:, None, None]
        self.weights.append(full_weights(q, k, seen))
        return self.weights[-1] @ v


class CrossAttention(nn.Module):
    """softmax(Q K^T / sqrt(D)) V with Q of the target, K and V of the source.

    K and V are made once a source, by `remember`.
    """

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.index, self.num_heads = index, config.num_heads
        size, width = config.hidden_size, config.num_heads * config.head_width
        self.gain, self.phi = query_gain(config), QKV_ACTIVATIONS[config.qkv_activation]
        self.query = Linear(size, width, bias=config.bias)
        self.key_value = Linear(size, 2 * width, bias=config.bias)
        self.key_value.maps = {"weight": (width, width)}
        self.output = Linear(width, size, bias=config.bias)
        self.query_norm = self.key_norm = nn.Identity()
        if config.qk_norm:
            self.query_norm = RMSNorm(config.head_width, eps=config.norm_eps)
            self.key_norm = RMSNorm(config.head_width, eps=config.norm_eps)

    def remember(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values (S, heads, L, D) of features (S, L, H)."""
        heads = self.phi(self.key_value(encoded)).unflatten(-1, (2, self.num_heads, -1))
        k, v = heads.permute(2, 0, 3, 1, 4)  # (S, heads, L, D) each
        return self.key_norm(k), v

    def forward(self, x: Tensor, attend: Reading) -> Tensor:
        heads = self.phi(self.query(x)).unflatten(-1, (self.num_heads, -1))
        q = self.query_norm(heads.transpose(1, 2))  # (B, heads, T, D)
        if self.gain != 1:
            q = q * self.gain
        read = attend.source(self.index, q)
        return self.output(read.transpose(1, 2).flatten(2))


class DecoderBlock(Block):
    """A block that reads the source between its attention and its feed-forward part."""

    called_whole = False  # the memory is made with its maps before it is called

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__(config, index)
        self.cross, self.cross_norm = CrossAttention(config, index), norm_of(config)

    def forward(self, x: Tensor, rotation: Tensor | None, attend: Reading) -> Tensor:
        if self.pre:
            x = x + self.dropout(self.attention(self.attention_norm(x), rotation, attend))
            x = x + self.dropout(self.cross(self.cross_norm(x), attend))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, rotation, attend)))
        x = self.cross_norm(x + self.dropout(self.cross(x, attend)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class TransformerEncoder(nn.Module):
    """Blocks without a causal mask over a source: every place sees all places that are there.

    Args:
        config: of the model.
        inputs: makes vectors (S, L, E) of the source's values, E being `embedding_width`.
    """

    def __init__(self, config: Seq2SeqTransformerConfig, inputs: nn.Module) -> None:
        super().__init__()
        self.config, self.inputs = config, inputs
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(config.source_window, config.position_width)
        self.embedding_norm = norm_of(config) if config.embedding_norm else nn.Identity()
        count = config.encoder_layers or config.num_layers
        self.blocks = nn.ModuleList(Block(config, i) for i in range(count))
        self.final_norm = norm_of(config) if config.norm_position == "pre" else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(self, values: Tensor, lengths: Sequence[int]) -> tuple[Tensor, tuple[()]]:
        """Read sources.

        Args:
            values: (S, L) of int64, or (S, L, F), padded on the right.
            lengths: S of them.

        Returns:
            Features (S, L, H), which mean nothing past a source's end; and no first states.

        Raises:
            SeqgenError: positions are learned, and there are none so far from the beginning.
        """
        size, there = values.shape[1], None
        if min(lengths) < size:
            counts = torch.tensor(lengths, device=values.device)[:, None]
            there = torch.arange(size, device=values.device) < counts  # (S, L)
        return self.read(values, there), ()

    def read(self, values: Tensor, there: Tensor | None) -> Tensor:
        """Return features (S, L, H) of values whose places are `there`, (S, L); None for all."""
        return self.layers(values, there)[-1]

    def layers(self, values: Tensor, there: Tensor | None) -> list[Tensor]:
        """Return what each block makes of values, (S, L, H), the last normalised; see `read`."""
        x, rotation = self._embedded(values)
        dropout = self.config.attention_dropout if self.training else 0.0

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return full_attention(q, k, v, there, dropout)

        features = []
        for block in self.blocks:
            x = block(x, rotation, attend)
            features.append(x)
        return [*features[:-1], self.final_norm(x)]

    def _embedded(self, values: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what the blocks read, (S, L, H), and how RoPE turns it."""
        x, rotation = self._placed(self.inputs(values))
        return self.dropout(self.embedding_norm(x)), rotation

    def _placed(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return vectors x (S, L, E) with their positions, (S, L, H), and how RoPE turns them."""
        config, size = self.config, x.shape[1]
        side_by_side = config.position_size is not None
        if config.scale_embedding:
            x = x * math.sqrt(config.hidden_size)
        if config.positions == "learned":
            if size > config.source_window:
                raise SeqgenError(
                    f"a source has {size} tokens, and this model has learned "
                    f"{config.source_window} positions; give shorter ones"
                )
            return with_positions(x, self.position_embedding.weight[:size], side_by_side), None
        if config.positions == "rope":
            # Rotations tell how far apart two places are. The end of a text tells where they are;
            # vectors have no end symbol, and the cells of a grid would not know their place.
            if config.source_features is not None:
                x = x + sinusoids(size, config.hidden_size).to(x)
            return x, waves_of(config, size).to(x)
        return with_positions(x, waves_of(config, size).to(x), side_by_side), None


class Seq2SeqTransformer(Transformer, EncoderDecoder):
    """The registry's `seq2seq-transformer`.

    Its decoder is `Transformer`, windows and all, whose blocks read the encoder's features too;
    their keys and values are computed once a source.
    """

    config: Seq2SeqTransformerConfig
    block = DecoderBlock
    reducible = False  # what is beside a row, such as longer sources, would show
    over_tensors = None  # what runs over tensors alone would have to take the memory too

    def __init__(self, config: Seq2SeqTransformerConfig) -> None:
        super().__init__(config)
        if config.positions == "learned":
            self.source_window = config.source_window
        inputs = source_input(config, config.embedding_width, self.embedding)
        self.encoder = TransformerEncoder(config, inputs)
        initialise(self, config)

    def encode(self, values: Tensor, lengths: Sequence[int]) -> Memory:
        encoded, first = self.encoder(values, lengths)
        keys, values = zip(*(x.cross.remember(encoded) for x in self.blocks), strict=True)
        return Memory(keys, values, first, list(lengths), list(range(len(lengths))))

    def start(self, memory: Memory, stride: int | None = None) -> MemoryCache:
        rows = len(require_memory(memory).owners)
        state = MemoryCache(**vars(super().start(rows, stride)), memory=memory)
        if self.config.decoder_start is not None:
            with torch.no_grad():
                self._read(self._first(rows), state)
        return state

    def _first(self, rows: int) -> Tensor:
        """Return what is read before the start of a text: (rows, 1), or (rows, 0) for nothing."""
        token, count = self.config.decoder_start, 1
        if token is None:
            token, count = 0, 0
        return torch.full((rows, count), token, device=self.device)

    def hidden(
        self, tokens: Tensor, state: MemoryCache | Memory | None
    ) -> tuple[Tensor, MemoryCache | None]:
        if isinstance(state, MemoryCache):
            return self._read(tokens, state)
        reading = Reading(self._attend_within, require_memory(state), self._cross_dropout)
        first = self._first(len(tokens))
        features = self._stack(*self._window(torch.cat([first, tokens], 1)), reading)
        return features[:, first.shape[1] :], None

    def attend(self, tokens: Tensor, memory: Memory) -> Tensor:
        first = self._first(len(tokens))
        weights = super().attend(torch.cat([first, tokens], 1), memory)
        return weights[:, :, :, first.shape[1] :]

    def attend_in_window(self, tokens: Tensor, memory: Memory) -> Tensor:
        reading = Recording(self._attend_within, memory)
        self._stack(*self._window(tokens), reading)
        every = []
        for weights in reading.weights:
            grouped = weights.unflatten(2, (-1, tokens.shape[1])).transpose(1, 2)
            every.append(memory.ungroup(grouped))  # (B, heads, T, L)
        return torch.stack(every, 1)

    @property
    def _cross_dropout(self) -> float:
        return self.config.attention_dropout if self.training else 0.0

    def _attending(self, attend: Attend, state: MemoryCache, rows: Sequence[int]) -> Reading:
        return Reading(attend, state.memory.select(rows), self._cross_dropout)


class RowReading:
    """`Reading` of one token a row, over arrays."""

    def __init__(self, self_attend: one_token.Attend, memory: Memory) -> None:
        self.self_attend, self.memory = self_attend, memory
        self.there = None if memory.there is None else memory.there.numpy()

    def __call__(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        return self.self_attend(layer, q, k, v)

    def source(self, layer: int, q: np.ndarray) -> np.ndarray:
        """Return what queries (B, heads, D) read of their sources."""
        memory = self.memory
        keys, values = memory.keys[layer].numpy(), memory.values[layer].numpy()
        asked = memory.group_array(q).swapaxes(1, 2)  # (S, heads, G, D)
        read = attend_grouped(asked, keys, values, self.there)
        return memory.ungroup_array(read.swapaxes(1, 2))


class RowCrossAttention:
    """`CrossAttention` of x (B, H)."""

    def __init__(self, cross: CrossAttention) -> None:
        self.index, self.num_heads = cross.index, cross.num_heads
        self.gain, self.phi = cross.gain, one_token.activation_over_arrays(cross.phi)
        self.query = one_token.affine_of(cross.query)
        self.output = one_token.affine_of(cross.output)
        self.query_norm = one_token.over_arrays(cross.query_norm)

    def __call__(self, x: np.ndarray, attend: RowReading) -> np.ndarray:
        heads = self.phi(self.query(x)).reshape(len(x), self.num_heads, -1)
        q = self.query_norm(heads)  # (B, heads, D)
        if self.gain != 1:
            q = q * self.gain
        read = attend.source(self.index, q)
        return self.output(read.reshape(len(x), -1))


class RowDecoderBlock(one_token.RowBlock):
    """`DecoderBlock`; the stream x (B, H) in and out."""

    def __init__(self, block: DecoderBlock) -> None:
        super().__init__(block)
        self.cross = RowCrossAttention(block.cross)
        self.cross_norm = one_token.over_arrays(block.cross_norm)

    def __call__(self, x: np.ndarray, rotation: np.ndarray | None, read: RowReading) -> np.ndarray:
        if self.pre:
            x = x + self.attention(self.attention_norm(x), rotation, read)
            x = x + self.cross(self.cross_norm(x), read)
            return x + self.feed_forward(self.feed_forward_norm(x))
        x = self.attention_norm(x + self.attention(x, rotation, read))
        x = self.cross_norm(x + self.cross(x, read))
        return self.feed_forward_norm(x + self.feed_forward(x))


class OneTokenOfTarget(one_token.OneToken):
    """`OneToken` of a decoder with a memory."""

    row_block = RowDecoderBlock

    def attending(self, attend: one_token.Attend, cache: MemoryCache) -> RowReading:
        return RowReading(attend, cache.memory)


Seq2SeqTransformer.one_token = OneTokenOfTarget
