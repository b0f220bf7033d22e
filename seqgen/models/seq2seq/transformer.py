"""The encoder-decoder transformer (Vaswani et al. 2017), from its first form to a recent one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqgen.errors import SeqgenError
from seqgen.models.dropout import Dropout
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.engines.tensor_ops import TensorOps
from seqgen.models.engines.tensor_products import as_tensor
from seqgen.models.seq2seq.base import (
    EncoderDecoder,
    require_memory,
    source_input,
)
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.reading import MemoryCache, Reading, cross_attention, remembered
from seqgen.models.seq2seq.transformer_arrays import Seq2SeqTransformerArrays
from seqgen.models.seq2seq.transformer_config import Seq2SeqTransformerConfig
from seqgen.models.transformer.attention import full_attention, full_weights
from seqgen.models.transformer.blocks import Block, head_norm, norm_of
from seqgen.models.transformer.config import TransformerConfig
from seqgen.models.transformer.equations import Attend, Heads, placed
from seqgen.models.transformer.model import Transformer, initialise
from seqgen.models.transformer.positions import sinusoids, waves_of


class CrossAttention(nn.Module):
    """See `reading.cross_attention`. K and V are made once a source, by `remember`."""

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.heads = Heads.of(config, index)
        size, width = config.hidden_size, self.heads.widths[0]
        self.query = Linear(size, width, bias=config.bias)
        self.key_value = Linear(size, 2 * width, bias=config.bias)
        self.key_value.maps = {"weight": (width, width)}
        self.output = Linear(width, size, bias=config.bias)
        self.query_norm, self.key_norm = head_norm(config), head_norm(config)

    def remember(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values (S, heads, L, D) of features (S, L, H)."""
        return remembered(TensorOps, self, self.heads, encoded)

    def forward(self, x: Tensor, attend: Reading) -> Tensor:
        return cross_attention(TensorOps, self, self.heads, x, attend)


class DecoderBlock(Block):
    """A block that reads the source between its attention and its feed-forward part."""

    called_whole = False  # the memory is made with its maps before it is called

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__(config, index)
        self.cross, self.cross_norm = CrossAttention(config, index), norm_of(config)


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
        if config.positions == "learned":
            if size > config.source_window:
                raise SeqgenError(
                    f"a source has {size} tokens, and this model has learned "
                    f"{config.source_window} positions; give shorter ones"
                )
            vectors = self.position_embedding.weight[:size]
        else:
            vectors = waves_of(TensorOps, config, size).to(x)
        x, rotation = placed(TensorOps, config, x, vectors)
        if rotation is not None and config.source_features is not None:
            # Rotations tell how far apart two places are. The end of a text tells where they are;
            # vectors have no end symbol, and the cells of a grid would not know their place.
            x = x + sinusoids(TensorOps, size, config.hidden_size).to(x)
        return x, rotation


class Seq2SeqTransformer(Transformer, EncoderDecoder):
    """The registry's `seq2seq-transformer`.

    Its decoder is `Transformer`, windows and all, whose blocks read the encoder's features too;
    their keys and values are computed once a source.
    """

    config: Seq2SeqTransformerConfig
    arrays = Seq2SeqTransformerArrays
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
                self.read(self._first(rows), state)
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
            return self.read(tokens, state.map(as_tensor))
        reading = Reading(self.attend_within, require_memory(state), self.attend_to_all)
        first = self._first(len(tokens))
        features = self.stacked(*self.in_window(torch.cat([first, tokens], 1)), reading)
        return features[:, first.shape[1] :], None

    def attend(self, tokens: Tensor, memory: Memory) -> Tensor:
        first = self._first(len(tokens))
        weights = super().attend(torch.cat([first, tokens], 1), memory)
        return weights[:, :, :, first.shape[1] :]

    def attend_in_window(self, tokens: Tensor, memory: Memory) -> Tensor:
        every = []

        def attend_to_all(q: Tensor, k: Tensor, v: Tensor, there: Tensor | None) -> Tensor:
            weights = full_weights(q, k, None if there is None else there[:, None, None])
            grouped = weights.unflatten(2, (-1, tokens.shape[1])).transpose(1, 2)
            every.append(memory.ungroup(grouped))  # (B, heads, T, L)
            return weights @ v

        reading = Reading(self.attend_within, memory, attend_to_all)
        self.stacked(*self.in_window(tokens), reading)
        return torch.stack(every, 1)

    def attend_to_all(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None) -> Tensor:
        """See `Reading`."""
        dropout = self.config.attention_dropout if self.training else 0.0
        return full_attention(q, k, v, there, dropout)

    def attending(self, attend: Attend, state: MemoryCache, rows: Sequence[int]) -> Reading:
        return Reading(attend, state.memory.select(rows), self.attend_to_all)
