"""Decoder-only transformer over NumPy arrays."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqgen.engines.arrays import attend_each, attend_to_past
from seqgen.engines.native.recording import (
    Past,
    Program,
    Recorded,
    Recording,
    describe_cache,
    record_program,
)
from seqgen.engines.ops import ArrayOps, Ops
from seqgen.engines.weights import Weights
from seqgen.models.arrays import NeuralArrays
from seqgen.models.transformer.context import AnchoredContext, KVAppender, KVRefresher
from seqgen.models.transformer.equations import Attend, causal_mask
from seqgen.models.transformer.kv_cache import KVCache
from seqgen.models.transformer.positions import position_waves

if TYPE_CHECKING:
    from seqgen.models.transformer.settings import TransformerConfig

# Tokens of a row that the library reads at once: of more, NumPy's products over all queries of a
# row take less time. And tokens of all rows: what a layer makes of so many stays in the L2 cache.
FEW_TOKENS, MOST_TOKENS = 128, 64


class TransformerArrays(AnchoredContext, NeuralArrays):
    """Decoder-only transformer over NumPy arrays; see `Transformer`.

    Args:
        config: of the model.
        weights: see `shapes`.
        ops: `ArrayOps`, or what does the same with arrays.
        quantized: the precision that the weights' maps are kept in; None for their own.
    """

    reads_blocks = True

    def __init__(
        self,
        config: TransformerConfig,
        weights: Weights,
        ops: Ops = ArrayOps,
        quantized: str | None = None,
    ) -> None:
        super().__init__(config, weights, ops)
        self.window = config.window
        if config.positions != "learned":
            waves = weights.get("waves")  # a torch module's own, whose cosines differ in rounding
            waves = position_waves(ops, config, config.window) if waves is None else waves
            self.waves = waves.astype(self.dtype, copy=False)
        # What is rounded would magnify the least difference between a row alone and among others.
        self.attend_to_past = attend_each if quantized else attend_to_past
        if config.attention_softcap is not None:
            softcap = {"softcap": config.attention_softcap}
            self.attend_to_past = functools.partial(self.attend_to_past, **softcap)

    def hidden(self, tokens: np.ndarray, state: KVCache | None) -> tuple[np.ndarray, KVCache]:
        return self.read(tokens, state or self.start(len(tokens)))

    def stacked(self, x: np.ndarray, rotation: np.ndarray | None, attend: Attend) -> np.ndarray:
        self_attend = getattr(attend, "self_attend", attend)  # apart from what is read of a source
        in_cache = isinstance(self_attend, KVAppender | KVRefresher) and x.shape[1] <= FEW_TOKENS
        if not in_cache or x.dtype != np.float32 or self.program is None:
            return super().stacked(x, rotation, attend)
        tokens = self_attend.tokens()
        if x.shape[1] == 1:
            past = self._past_of(self_attend.state, *tokens)
            inputs = [x] if rotation is None else [x, rotation]
            return self.program(len(x), inputs, past)[0]
        if rotation is not None:
            rotation = np.broadcast_to(rotation, (*x.shape[:2], *rotation.shape[-2:]))
            rotation = rotation.reshape(-1, 1, *rotation.shape[-2:])
        y = self._run(x.reshape(-1, 1, x.shape[2]), rotation, self_attend.state, tokens)
        return y.reshape(x.shape)

    def _run(
        self,
        x: np.ndarray,
        rotation: np.ndarray | None,
        state: KVCache,
        tokens: tuple[Sequence[int], Sequence[int], Sequence[int]],
    ) -> np.ndarray:
        """Run the native program on tokens (N, 1, H), one row each; see `_past_of`."""
        inputs, y = [x] if rotation is None else [x, rotation], np.empty_like(x)
        for begin in range(0, len(y), MOST_TOKENS):
            some = slice(begin, begin + MOST_TOKENS)
            past = self._past_of(state, *(numbers[some] for numbers in tokens))
            of_these = [numbers[some] for numbers in inputs]
            y[some] = self.program(len(y[some]), of_these, past)[0]
        return y

    @property
    def most_together(self) -> int:
        compiled = self.dtype == np.float32 and self.program is not None
        return min(FEW_TOKENS, self.window) if compiled else 0

    def read_together(self, prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, KVCache]:
        lengths, state = [*map(len, prompts)], self.start(len(prompts))
        longest = max(lengths)
        ids = np.zeros((len(prompts), longest), np.int64)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = prompt
        state.append(ids)
        state.starts = [longest - length for length in lengths]
        for block in (*state.keys, *state.values):
            for row, start in enumerate(state.starts):
                block[row, :, :start] = 0  # which NumPy multiplies by nothing
        of_each = [
            (row, slot) for row, start in enumerate(state.starts) for slot in range(start, longest)
        ]
        rows, slots = map(list, zip(*of_each, strict=True))
        features = self.read_slots(ids[rows, slots], rows, slots, state)
        return self.head(features[np.cumsum(lengths) - 1])[:, 0], state

    def read_slots(
        self, ids: np.ndarray, rows: Sequence[int], slots: Sequence[int], state: KVCache
    ) -> np.ndarray:
        """Compute features (N, 1, H) of tokens (N,), to the bits of reading them one by one.

        The program must be there; the cache is written in place.

        Args:
            ids: the tokens, those of a row in order.
            rows: the row of each.
            slots: the slot of each, which the cache has.
            state: the cache.
        """
        starts = [state.starts[row] for row in rows]
        x, rotation = self.embedded(ids[:, None], (np.array(slots) - starts)[:, None])
        return self._run(x, rotation, state, (rows, starts, [slot + 1 for slot in slots]))

    @property
    def is_row_by_row(self) -> bool:
        """Whether `read_slots` and the head give the bits of reading tokens one by one."""
        return self.most_together > 0 and self.head.is_row_by_row

    @functools.cached_property
    def program(self) -> Program | None:
        """Native program of one token through all blocks; None without the library."""
        squashed = self.config.attention_softcap is not None
        if len(self.config.spans) > 1 or squashed:
            return None  # the library has one start of a row for all layers, and plain softmax
        shapes, recording = [(1, self.config.hidden_size)], Recording()
        if self.config.positions == "rope":
            shapes.append((1, 2, self.config.head_width // 2))

        def step(x: Recorded, rotation: Recorded | None = None) -> list[Recorded]:
            return [super(TransformerArrays, self).stacked(x, rotation, recording)]

        return record_program(step, shapes, recording)

    def _past_of(
        self, state: KVCache, rows: Sequence[int], starts: Sequence[int], ends: Sequence[int]
    ) -> Past:
        """Lay out the cache for the native library: for each token the slots it attends to.

        Args:
            state: the cache.
            rows: of each token; see `KVAppender.tokens`, also for the others.
            starts: the first slot that it sees.
            ends: what follows its own slot.
        """
        blocks, known = (*state.keys, *state.values), state.__dict__.get("places")
        if known is None or any(x() is not y for x, y in zip(known[0], blocks, strict=True)):
            # With the state, which has the same blocks for many steps; it must not keep old ones.
            places = np.array([x.ctypes.data for x in blocks], np.int64)
            known = [*map(weakref.ref, blocks)], places
            state.__dict__["places"] = known
        places, slots = known[1], state.keys[0].shape[2]
        if (span := self.config.span(0)) is not None:
            starts = [max(start, end - span) for start, end in zip(starts, ends, strict=True)]
        memory = getattr(state, "memory", None)
        if memory and not memory.keys[0].flags.c_contiguous:  # made by torch; once a source
            memory.put_in_order()
        sources = memory and ((*memory.keys, *memory.values), memory.owners, memory.lengths)
        one_each = rows == range(len(state.starts))
        origins = state.origins if one_each else None
        return describe_cache(
            places, slots, starts, ends, None if one_each else rows, origins, sources
        )

    def attend_within(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        places = np.arange(q.shape[2])
        seen = causal_mask(places, places, self.config.span(layer))
        return self.attend_to_past(q, k, v, seen[None, None])
