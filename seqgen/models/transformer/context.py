"""Transformer forward pass with embeddings, blocks, KV cache and sliding window."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from seqgen.engines.ops import Leaf
from seqgen.engines.parts import Linear, Pieces, Table
from seqgen.models.transformer.equations import (
    Attend,
    Block,
    add_positions,
    block_outputs,
    causal_mask,
    squash,
    stack_pieces,
)
from seqgen.models.transformer.kv_cache import KVCache, empty_cache

if TYPE_CHECKING:
    from seqgen.models.transformer.settings import TransformerConfig

# Tokens, over all windows, that a long text is worked through at a time.
SKIMMED = 8192


@dataclass
class KVAppender:
    """Attention callback that appends new keys and values to a KV cache.

    Attributes:
        attend: see `AnchoredContext.attend_to_past`.
        state: the cache, whose last slots are taken for the tokens.
        length: how many tokens there are.
        begin: the first slot that any row sees.
        seen: see `AnchoredContext.attend_to_past`.
        near: which positions each sees where a layer's sight is short, (1, 1, T, n); None where
            cutting the others off is enough.
        span: see `TransformerConfig.span`.
    """

    attend: Callable[[Leaf, Leaf, Leaf, Leaf | None], Leaf]
    state: KVCache
    length: int
    begin: int
    seen: Leaf | None
    near: Leaf | None
    span: Callable[[int], int | None]

    def __call__(self, layer: int, q: Leaf, k: Leaf, v: Leaf) -> Leaf:
        begin, end, seen = self.begin, self.state.end, self.seen
        keys, values = self.state.keys[layer], self.state.values[layer]
        keys[:, :, end - self.length : end] = k
        values[:, :, end - self.length : end] = v
        if (span := self.span(layer)) is not None:
            begin = max(begin, end - self.length - span + 1)
            seen = seen if self.near is None else seen & self.near
            seen = seen if seen is None else seen[..., begin - self.begin :]
        return self.attend(q, keys[:, :, begin:end], values[:, :, begin:end], seen)

    def tokens(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """List the row, first visible slot and last visible slot + 1 of each token."""
        rows, end, length = range(len(self.state.starts)), self.state.end, self.length
        return _spread(rows, self.state.starts, range(end - length + 1, end + 1))


@dataclass
class KVRefresher:
    """Attention callback that recomputes the windows of some rows of a KV cache.

    Attributes:
        attend: see `AnchoredContext.attend_within`.
        state: the cache.
        rows: of it, all of which begin in the same slot.
    """

    attend: Attend
    state: KVCache
    rows: Sequence[int]

    def __call__(self, layer: int, q: Leaf, k: Leaf, v: Leaf) -> Leaf:
        begin, end = self.state.starts[self.rows[0]], self.state.end
        self.state.keys[layer][self.rows, :, begin:end] = k
        self.state.values[layer][self.rows, :, begin:end] = v
        return self.attend(layer, q, k, v)

    def tokens(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """List the row, first visible slot and last visible slot + 1 of each token."""
        begin, end = self.state.starts[self.rows[0]], self.state.end
        return _spread(self.rows, [begin] * len(self.rows), range(begin + 1, end + 1))


def _spread(
    rows: Sequence[int], starts: Sequence[int], ends: Sequence[int]
) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Repeat rows and starts for every token of a row, all rows having the same ends."""
    if len(ends) == 1:
        return rows, starts, [*ends] * len(rows)
    rows, starts = ([number for number in x for _ in ends] for x in (rows, starts))
    return rows, starts, [*ends] * (len(rows) // len(ends))


class AnchoredContext:
    """Transformer over an anchored window: a full row is recomputed from its last tokens.

    Past its window W its context is anchored: a row that holds W tokens falls back to its last
    W - S, computed afresh at positions 0 on, then takes the next token. So what a prediction
    depends on follows from the token's place in its row alone, and scoring a long text is
    sliding-window perplexity with stride S.
    """

    config: TransformerConfig
    like: Leaf
    window: int
    waves: Leaf
    embedding: Callable[[Leaf], Leaf]
    kind: ClassVar[type[Block]] = Block
    checkpointing: bool = False
    """Whether training keeps only the inputs of blocks, and computes the rest again."""

    @classmethod
    def pieces(cls, config: TransformerConfig) -> Pieces:
        return {
            "embedding": Table(config.vocab_size, config.embedding_width),
            **stack_pieces(config, cls.kind, config.num_layers, config.window),
            "head": Linear(config.hidden_size, config.vocab_size, config.output_bias),
        }

    def attend_to_past(self, q: Leaf, k: Leaf, v: Leaf, seen: Leaf | None) -> Leaf:
        """Attend from queries (B, heads, T, D) at the last T of n positions.

        Args:
            q: the queries.
            k: keys (B, heads, n, D), or fewer heads.
            v: values, as keys.
            seen: which positions each sees, (B, 1, T, n) or what fits that shape; None for all.
        """
        raise NotImplementedError

    def attend_within(self, layer: int, q: Leaf, k: Leaf, v: Leaf) -> Leaf:
        """Compute causal attention of a layer within windows that start at position 0."""
        raise NotImplementedError

    def attending(self, attend: Attend, state: KVCache, rows: Sequence[int]) -> Attend:
        """Wrap the attention callback of a call on some rows; subclasses add cross-attention.

        A model whose blocks read something else besides overrides this.
        """
        return attend

    def start(self, batch: int, stride: int | None = None) -> KVCache:
        """Create an empty cache of `batch` rows; see `InferenceModel.start`."""
        config = self.config
        stride = max(1, config.window // 2) if stride is None else stride
        if not 1 <= stride <= config.window:
            raise ValueError(f"stride must be from 1 to {config.window}, not {stride}")
        heads = config.kv_heads
        return empty_cache(batch, config.num_layers, heads, config.head_width, stride, self.like)

    def features_at(self, tokens: Leaf, positions: Leaf, attend: Attend) -> Leaf:
        """Compute features (B, T, H) of tokens (B, T) at positions ([B,] T)."""
        return self.stacked(*self.embedded(tokens, positions), attend)

    def embedded(self, tokens: Leaf, positions: Leaf) -> tuple[Leaf, Leaf | None]:
        """Embed tokens at positions: (B, T, H), and RoPE's rotations ([B,] T, 2, D / 2) or None."""
        learned = self.config.positions == "learned"
        vectors = self.position_embedding(positions) if learned else self.waves[positions]
        x, rotation = add_positions(self.ops, self.config, self.embedding(tokens), vectors)
        return self.dropout(self.embedding_norm(x)), rotation

    @property
    def predicts_by_head(self) -> bool:
        return self.config.logit_softcap is None

    def logits(self, features: Leaf, tokens: Leaf, past: Any, last: int | None = None) -> Leaf:
        """Compute the logits (B, T, V) of features; see `HiddenStateModel.logits`."""
        logits = super().logits(features, tokens, past, last)
        return squash(logits, self.config.logit_softcap)

    def stacked(self, x: Leaf, rotation: Leaf | None, attend: Attend) -> Leaf:
        """Run all blocks and the final norm on x (B, T, H)."""
        outputs = block_outputs(self, x, rotation, attend)
        return self.final_norm(functools.reduce(lambda _, last: last, outputs))

    def in_window(self, tokens: Leaf) -> tuple[Leaf, Leaf | None]:
        """Embed tokens (B, T) at positions 0 on; see `embedded`."""
        if tokens.shape[1] > self.window:
            raise ValueError(f"{tokens.shape[1]} tokens do not fit the window {self.window}")
        return self.embedded(tokens, self.ops.count(tokens, tokens.shape[1]))

    def features_by(self, tokens: Leaf, attend: Attend) -> Leaf:
        """Compute features (B, T, H) of windows (B, T) with a causal attention callback."""
        return self.stacked(*self.in_window(tokens), attend)

    def seen(self, layer: int, places: Leaf) -> Leaf | None:
        """Compute the causal mask (T, T) of a layer; None if every place sees all."""
        return causal_mask(places, places, self.config.span(layer))

    def layer_features(self, tokens: Leaf) -> list[Leaf]:
        """Compute every block's output on texts that fit the window."""
        x, rotation = self.in_window(tokens)
        *features, x = block_outputs(self, x, rotation, self.attend_within)
        return [*features, self.final_norm(x)]

    def read(self, tokens: Leaf, state: KVCache) -> tuple[Leaf, KVCache]:
        """Run tokens (B, T) after the cached ones, sliding the window of full rows."""
        pieces = []
        while tokens.shape[1]:
            lengths = [state.length(row) for row in range(tokens.shape[0])]
            taken = self.window - max(lengths)
            if min(lengths) == self.window and tokens.shape[1] >= state.stride:
                pieces.append(self._skim(tokens, state))
                taken = pieces[-1].shape[1]
            elif taken == 0:
                self.slide(state)
            else:
                pieces.append(self._extend(tokens[:, :taken], state))
            tokens = tokens[:, taken:]
        return self.ops.along(1, *pieces) if len(pieces) > 1 else pieces[0], state

    def _extend(self, tokens: Leaf, state: KVCache) -> Leaf:
        """Run tokens (B, T) that fit every row's window, after the cached ones."""
        ops = self.ops
        state.append(tokens)
        length, end = tokens.shape[1], state.end
        begin, last = min(state.starts), max(state.starts)
        slots, seen = ops.count(tokens, end)[end - length :], None
        positions, past, near = slots - begin, ops.count(tokens, end)[begin:], None
        if length > 1:
            seen = causal_mask(slots, past, None)[None, None]  # (1, 1, T, n)
            near = causal_mask(slots, past, self.config.sliding_window)[None, None]
        if last > begin:
            starts = ops.ints(tokens, state.starts)[:, None]  # (B, 1)
            positions = slots - starts  # (B, T)
            own = (past >= starts)[:, None, None]  # (B, 1, 1, n)
            seen = own if seen is None else own & seen

        attend = KVAppender(self.attend_to_past, state, length, begin, seen, near, self.config.span)
        rows = range(len(state.starts))
        return self.features_at(tokens, positions, self.attending(attend, state, rows))

    def _skim(self, tokens: Leaf, state: KVCache) -> Leaf:
        """Run several strides of tokens (B, T) as parallel windows, all rows being full.

        The windows that sliding would come to depend on tokens alone, so they run side by side.
        What is left is full rows again, of which the next slide needs only the tokens.
        """
        ops, stride, window, end = self.ops, state.stride, self.window, state.end
        batch = tokens.shape[0]
        count = min(tokens.shape[1] // stride, max(1, SKIMMED // (batch * window)))
        past = state.tokens[:, end - window : end]
        text = ops.along(1, past, tokens[:, : count * stride])  # (B, W + count S)
        positions = ops.count(tokens, window)
        begins = stride * (1 + ops.count(tokens, count))
        windows = text[:, begins[:, None] + positions].reshape(-1, window)  # (B count, W)
        rows = [row for row in range(batch) for _ in range(count)]
        attend = self.attending(self.attend_within, state, rows)
        features = self.features_at(windows, positions, attend)
        state.tokens[:, end - window : end] = text[:, -window:]
        state.rewritten(range(batch))
        return features[:, window - stride :].reshape(batch, count * stride, -1)

    def slide(self, state: KVCache) -> None:
        """Recompute every full row from its last W - S tokens, at positions 0 on."""
        full = [r for r in range(len(state.starts)) if state.length(r) == self.window]
        start, end = state.end - (self.window - state.stride), state.end
        state.rewritten(full)
        for row in full:
            state.starts[row] = start
        if start == end:
            return

        positions = self.ops.count(state.tokens, end - start)
        attend = self.attending(KVRefresher(self.attend_within, state, full), state, full)
        self.features_at(state.tokens[full, start:end], positions, attend)
