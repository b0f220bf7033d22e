"""The decoder-only transformer over arrays."""

from __future__ import annotations

import functools
import weakref

import numpy as np

from seqgen.models.engines.arrays import attend_each, attend_to_past
from seqgen.models.engines.native.recording import Program, Recorded, Recording, past_of, recorded
from seqgen.models.engines.ops import ArrayOps, Ops
from seqgen.models.engines.weights import Weights
from seqgen.models.reader import NeuralArrays
from seqgen.models.transformer.config import TransformerConfig
from seqgen.models.transformer.context import AnchoredContext, Appending
from seqgen.models.transformer.equations import Attend, seen_from
from seqgen.models.transformer.kv_cache import KVCache
from seqgen.models.transformer.positions import waves_of


class TransformerArrays(AnchoredContext, NeuralArrays):
    """The transformer of `Transformer`, see there.

    Args:
        config: of the model.
        weights: see `shapes`.
        ops: `ArrayOps`, or what does the same with arrays.
        reduced: the precision that the weights' maps are kept in; None for their own.
    """

    def __init__(
        self,
        config: TransformerConfig,
        weights: Weights,
        ops: Ops = ArrayOps,
        reduced: str | None = None,
    ) -> None:
        super().__init__(config, weights, ops)
        self.window = config.window
        if config.positions != "learned":
            waves = weights.get("waves")  # a torch module's own, whose cosines differ in rounding
            waves = waves_of(ops, config, config.window) if waves is None else waves
            self.waves = waves.astype(self.dtype, copy=False)
        # What is rounded would magnify the least difference between a row alone and among others.
        self.attend_to_past = attend_each if reduced else attend_to_past

    def hidden(self, tokens: np.ndarray, state: KVCache | None) -> tuple[np.ndarray, KVCache]:
        return self.read(tokens, state or self.start(len(tokens)))

    def stacked(self, x: np.ndarray, rotation: np.ndarray | None, attend: Attend) -> np.ndarray:
        own = getattr(attend, "self_attend", attend)  # apart from what is read of a source
        one = isinstance(own, Appending) and own.length == 1 and x.dtype == np.float32
        if not one or self.program is None:
            return super().stacked(x, rotation, attend)
        past, *_kept = self._past_of(own.state)
        inputs = [x] if rotation is None else [x, rotation]
        return self.program(len(x), inputs, past.ctypes.data)[0]

    @functools.cached_property
    def program(self) -> Program | None:
        """The blocks' step of one token in one call; None where NumPy takes it."""
        if self.config.span(0) != self.config.span(self.config.num_layers - 1):
            return None  # the library has one start of a row for all layers
        shapes, recording = [(1, self.config.hidden_size)], Recording()
        if self.config.positions == "rope":
            shapes.append((1, 2, self.config.head_width // 2))

        def step(x: Recorded, rotation: Recorded | None = None) -> list[Recorded]:
            return [super(TransformerArrays, self).stacked(x, rotation, recording)]

        return recorded(step, shapes, recording)

    def _past_of(self, state: KVCache) -> tuple[np.ndarray, ...]:
        """Return what the library reads a cache by, and what must live as long."""
        blocks, known = (*state.keys, *state.values), state.__dict__.get("places")
        if known is None or any(x() is not y for x, y in zip(known[0], blocks, strict=True)):
            # With the state, which has the same blocks for many steps; it must not keep old ones.
            places = np.array([x.ctypes.data for x in blocks], np.int64)
            known = [*map(weakref.ref, blocks)], places
            state.__dict__["places"] = known
        places, slots, starts = known[1], state.keys[0].shape[2], state.starts
        if (span := self.config.span(0)) is not None:
            starts = [max(start, state.end - span) for start in starts]
        memory = getattr(state, "memory", None)
        if memory and not memory.keys[0].flags.c_contiguous:  # made by torch; once a source
            memory.put_in_order()
        sources = memory and ((*memory.keys, *memory.values), memory.owners, memory.lengths)
        return past_of(places, slots, starts, state.end, state.origins, sources)

    def attend_within(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        places = np.arange(q.shape[2])
        seen = seen_from(places, places, self.config.span(layer))
        return attend_to_past(q, k, v, seen[None, None])
