"""The decoder-only transformer, from its form of 2017 over GPT-2's to Llama's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.models.base import NeuralLanguageModel
from seqgen.models.dropout import Dropout
from seqgen.models.engines.array_steps import ArraySteps
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.transformer.attention import causal_attention, for_each_query
from seqgen.models.transformer.blocks import Attend, Block, norm_of
from seqgen.models.transformer.config import TransformerConfig
from seqgen.models.transformer.kv_cache import KVCache, empty_cache
from seqgen.models.transformer.one_token import OneToken
from seqgen.models.transformer.positions import (
    RopeScaling,
    rotations,
    sinusoids,
    with_positions,
)

# Tokens, over all windows, that a long text is worked through at a time.
SKIMMED = 8192


def waves_of(config: TransformerConfig, length: int) -> Tensor:
    """Return what is added at, or turns, each of `length` positions: (length, ...)."""
    if config.positions == "rope":
        scaling = None
        if config.rope_scaling is not None:
            factors = config.rope_factor, config.rope_low_factor, config.rope_high_factor
            scaling = RopeScaling(config.rope_scaling, *factors, config.rope_original_window)
        return rotations(length, config.head_width, config.rope_theta, scaling)
    return sinusoids(length, config.position_width)


def initialise(network: nn.Module, config: TransformerConfig) -> None:
    """Draw the weights of a stack of blocks and of what stands around it; see `Transformer`."""
    into_stream = 0.02 / math.sqrt(2 * config.num_layers)
    for name, part in network.named_modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
        elif isinstance(part, nn.Linear):
            if config.norm_position == "post":
                nn.init.xavier_uniform_(part.weight)
            else:
                nn.init.normal_(part.weight, std=0.02)
                if name.endswith(".output"):
                    nn.init.normal_(part.weight, std=into_stream)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


class Transformer(ArraySteps, NeuralLanguageModel):
    """The registry's `transformer`.

    Past its window W its context is anchored: a row that holds W tokens falls back to its last
    W - S, computed afresh at positions 0 on, then takes the next token. So what a prediction
    depends on follows from the token's place in its row alone, and scoring a long text is
    sliding-window perplexity with stride S.

    Initialisation is GPT-2's (Radford et al. 2019): normal with deviation 0.02, and with
    0.02 / sqrt(2 layers) for the maps into the residual stream; for norm_position=post it is
    Glorot's, as in 2017.
    """

    config: TransformerConfig
    block: ClassVar[type[Block]] = Block
    one_token: ClassVar[type[OneToken]] = OneToken
    reducible = True

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config, self.window = config, config.window
        size = config.hidden_size
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_width)
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(config.window, config.position_width)
        self.embedding_norm = norm_of(config) if config.embedding_norm else nn.Identity()
        self.blocks = nn.ModuleList(self.block(config, i) for i in range(config.num_layers))
        self.final_norm = norm_of(config) if config.norm_position == "pre" else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.head = Linear(size, config.vocab_size, bias=config.output_bias)
        initialise(self, config)
        if config.tie_weights:
            self.head.weight = self.embedding.weight
        self.register_buffer("waves", waves_of(config, config.window), persistent=False)

    def _apply(self, *args: Any, **kwargs: Any) -> Transformer:
        waves = self.waves
        super()._apply(*args, **kwargs)
        if self.waves.itemsize < 4:
            # bf16 has under three digits: neighbouring positions would become one and the same.
            self.waves = waves.to(self.waves.device)
        return self

    def start(self, batch: int, stride: int | None = None) -> KVCache:
        config = self.config
        stride = max(1, config.window // 2) if stride is None else stride
        if not 1 <= stride <= config.window:
            raise ValueError(f"stride must be from 1 to {config.window}, not {stride}")
        like = self.head.weight
        heads = config.kv_heads
        return empty_cache(batch, config.num_layers, heads, config.head_width, stride, like)

    def step(self, tokens: Sequence[int], state: KVCache) -> tuple[np.ndarray, KVCache]:
        if not self.suits_arrays():
            return super().step(tokens, state)
        if state.end - min(state.starts) == self.window:  # a row is full: the longest
            self._slide(state)
        return self.prepared(lambda: self.one_token(self))(tokens, state), state

    def hidden(self, tokens: Tensor, state: KVCache | None) -> tuple[Tensor, KVCache | None]:
        if state is None:
            trains = self.training and torch.is_grad_enabled()
            stack = self._compiled if trains and self._compiled else self.over_tensors
            return stack(*self._window(tokens)), None
        if torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters()):
            raise ValueError(
                "a transformer's state takes no part in a graph: "
                "call it without a state to train, or under torch.no_grad() to decode"
            )
        return self._read(tokens, state)

    def _window(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what `_embedded` makes of tokens (B, T) that nothing comes before."""
        if tokens.shape[1] > self.window:
            raise ValueError(f"{tokens.shape[1]} tokens do not fit the window {self.window}")
        return self._embedded(tokens, torch.arange(tokens.shape[1], device=tokens.device))

    def _read(self, tokens: Tensor, state: KVCache) -> tuple[Tensor, KVCache]:
        """Run tokens (B, T) after what the cache holds, letting full rows fall back."""
        pieces = []
        while tokens.shape[1]:
            lengths = [state.length(row) for row in range(tokens.shape[0])]
            taken = self.window - max(lengths)
            if min(lengths) == self.window and tokens.shape[1] >= state.stride:
                pieces.append(self._skim(tokens, state))
                taken = pieces[-1].shape[1]
            elif taken == 0:
                self._slide(state)
            else:
                pieces.append(self._extend(tokens[:, :taken], state))
            tokens = tokens[:, taken:]
        return torch.cat(pieces, 1) if len(pieces) > 1 else pieces[0], state

    def features_at(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Return the features (B, T, H) of tokens (B, T) at positions ([B,] T), by `attend`."""
        return self._stack(*self._embedded(tokens, positions), attend)

    def _embedded(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what the blocks read, (B, T, H), and how RoPE turns it, ([B,] T, 2, D / 2)."""
        x = self.embedding(tokens)  # (B, T, H)
        if self.config.scale_embedding:
            x = x * math.sqrt(self.config.hidden_size)
        rotation, side_by_side = None, self.config.position_size is not None
        if self.config.positions == "rope":
            rotation = self.waves[positions]
        elif self.config.positions == "learned":
            x = with_positions(x, self.position_embedding(positions), side_by_side)
        else:
            x = with_positions(x, self.waves[positions], side_by_side)
        return self.dropout(self.embedding_norm(x)), rotation

    def _stack(self, x: Tensor, rotation: Tensor | None, attend: Attend) -> Tensor:
        """Run the blocks on x (B, T, H)."""
        for block in self.blocks:
            x = block(x, rotation, attend)
        return self.final_norm(x)

    def layer_features(self, tokens: Tensor) -> list[Tensor]:
        x, rotation = self._window(tokens)
        features = []
        for block in self.blocks:
            x = block(x, rotation, self._attend_within)
            features.append(x)
        return [*features[:-1], self.final_norm(x)]

    def over_tensors(self, x: Tensor, rotation: Tensor | None) -> Tensor:
        """Run the blocks on windows that nothing comes before.

        The embedding stays outside: its gradient, compiled, is added up in no fixed order.
        """
        return self._stack(x, rotation, self._attend_within)

    def features_by(self, tokens: Tensor, attend: Attend) -> Tensor:
        """Return the features (B, T, H) of windows (B, T), with `attend` for causal attention."""
        return self._stack(*self._window(tokens), attend)

    def _attending(self, attend: Attend, state: KVCache, rows: Sequence[int]) -> Attend:
        """Return what the blocks attend by, when they run on some rows of the state.

        A model whose blocks read something else besides overrides this.
        """
        return attend

    def _attend_within(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        dropout = self.config.attention_dropout if self.training else 0.0
        return causal_attention(q, k, v, dropout)

    def _extend(self, tokens: Tensor, state: KVCache) -> Tensor:
        """Run tokens (B, T) that fit every row's window, after what the cache holds."""
        state.append(tokens)
        length, end = tokens.shape[1], state.end
        begin = min(state.starts)
        slots = torch.arange(end - length, end, device=tokens.device)
        if max(state.starts) == begin:
            positions, mask = slots - begin, None
            if length > 1:
                mask = torch.arange(begin, end, device=tokens.device) <= slots[:, None]
        else:
            starts = torch.tensor(state.starts, device=tokens.device)[:, None]  # (B, 1)
            positions = slots - starts  # (B, T)
            past = torch.arange(begin, end, device=tokens.device)
            mask = (past >= starts[..., None]) & (past <= slots[:, None])  # (B, T, n)
            mask = mask[:, None]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = state.keys[layer], state.values[layer]
            keys[:, :, end - length : end] = k
            values[:, :, end - length : end] = v
            read = (for_each_query(q, x[:, :, begin:end]) for x in (keys, values))
            return F.scaled_dot_product_attention(q, *read, attn_mask=mask)

        rows = range(len(state.starts))
        return self.features_at(tokens, positions, self._attending(attend, state, rows))

    def _skim(self, tokens: Tensor, state: KVCache) -> Tensor:
        """Take as many whole strides of tokens (B, T) as fit one batch, all rows being full.

        The windows that sliding would come to depend on tokens alone, so they run side by side.
        What is left is full rows again, of which the next slide needs only the tokens.
        """
        stride, window, end = state.stride, self.window, state.end
        batch = tokens.shape[0]
        count = min(tokens.shape[1] // stride, max(1, SKIMMED // (batch * window)))
        past = state.tokens[:, end - window : end]
        text = torch.cat([past, tokens[:, : count * stride]], 1)  # (B, W + count S)
        windows = text[:, stride:].unfold(1, window, stride)  # (B, count, W)
        positions = torch.arange(window, device=tokens.device)
        rows = [row for row in range(batch) for _ in range(count)]
        attend = self._attending(self._attend_within, state, rows)
        features = self.features_at(windows.flatten(0, 1), positions, attend)
        state.tokens[:, end - window : end] = text[:, -window:]
        state.rewritten(range(batch))
        return features[:, window - stride :].reshape(batch, count * stride, -1)

    def _slide(self, state: KVCache) -> None:
        """Let every full row fall back to its last W - S tokens, at positions 0 on."""
        full = [r for r in range(len(state.starts)) if state.length(r) == self.window]
        start, end = state.end - (self.window - state.stride), state.end
        state.rewritten(full)
        for row in full:
            state.starts[row] = start
        if start == end:
            return

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            state.keys[layer][full, :, start:end] = k
            state.values[layer][full, :, start:end] = v
            return self._attend_within(layer, q, k, v)

        positions = torch.arange(end - start, device=state.tokens.device)
        attend = self._attending(attend, state, full)
        self.features_at(state.tokens[full, start:end], positions, attend)
