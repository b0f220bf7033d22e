"""The decoder-only transformer over arrays."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np

from seqgen.models.engines.arrays import ArrayMap, attend_each, attend_to_past, unchanged
from seqgen.models.engines.native.recording import Program, Recorded, Recording, past_of, recorded
from seqgen.models.engines.ops import ArrayOps, Ops
from seqgen.models.engines.weights import Shapes, Weights, linear_shapes
from seqgen.models.reader import NeuralArrays
from seqgen.models.transformer.config import TransformerConfig
from seqgen.models.transformer.context import AnchoredContext, Appending
from seqgen.models.transformer.equations import (
    ACTIVATIONS,
    Attend,
    BlockStack,
    Heads,
    attention,
    block,
    feed_forward,
    seen_from,
)
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
        self.config, self.window, self.ops = config, config.window, ops
        self.vectors = table = weights["embedding.weight"]
        self.embedding, self.dtype = table.__getitem__, table.dtype
        if config.positions != "learned":
            waves = weights.get("waves")  # a torch module's own, whose cosines differ in rounding
            waves = waves_of(ops, config, config.window) if waves is None else waves
            self.waves = waves.astype(self.dtype, copy=False)
        blocks = [
            self.block(config, weights.part("blocks", i), i) for i in range(config.num_layers)
        ]
        fill_stack(self, config, weights, blocks)
        self.head = weights.affine("head")
        # What is rounded would magnify the least difference between a row alone and among others.
        self.attend_to_past = attend_each if reduced else attend_to_past

    @staticmethod
    def shapes(config: TransformerConfig) -> Shapes:
        size = config.hidden_size
        shapes = {"embedding.weight": (config.vocab_size, config.embedding_width)}
        shapes |= stack_shapes(config, "", config.num_layers, config.window)
        return shapes | linear_shapes("head", size, config.vocab_size, config.output_bias)

    def block(self, config: TransformerConfig, weights: Weights, index: int) -> Callable:
        """Return a block."""
        return block_over_arrays(self.ops, config, weights, index)

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
            memory.keys, memory.values = (
                tuple(map(np.ascontiguousarray, x)) for x in (memory.keys, memory.values)
            )
        sources = memory and ((*memory.keys, *memory.values), memory.owners, memory.lengths)
        return past_of(places, slots, starts, state.end, state.origins, sources)

    def attend_within(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        places = np.arange(q.shape[2])
        seen = seen_from(places, places, self.config.span(layer))
        return attend_to_past(q, k, v, seen[None, None])


def fill_stack(
    stack: BlockStack, config: TransformerConfig, weights: Weights, blocks: Sequence[Callable]
) -> None:
    """Give a stack its blocks over arrays, and from its weights what stands around them."""
    ops, stack.blocks, stack.dropout = stack.ops, blocks, unchanged
    if config.positions == "learned":
        stack.position_embedding = weights["position_embedding.weight"].__getitem__
    stack.embedding_norm = norm_over_arrays(ops, config, weights.part("embedding_norm"))
    stack.depth = [weights[f"depth.{i}"] for i in range(len(blocks) * config.dense)]
    stack.final_norm = norm_over_arrays(ops, config, weights.part("final_norm"))


def stack_shapes(config: TransformerConfig, prefix: str, layers: int, window: int) -> Shapes:
    """Return the shapes of the weights of a stack, whose positions are `window`."""
    shapes: Shapes = {}
    if config.positions == "learned":
        shapes[f"{prefix}position_embedding.weight"] = window, config.position_width
    if config.embedding_norm:
        shapes |= norm_shapes(config, f"{prefix}embedding_norm")
    for i in range(layers):
        shapes |= block_shapes(config, f"{prefix}blocks.{i}")
        shapes |= config.depth_shape(f"{prefix}depth", i)
    if config.norm_position == "pre":
        shapes |= norm_shapes(config, f"{prefix}final_norm")
    return shapes


def block_over_arrays(
    ops: Ops,
    config: TransformerConfig,
    weights: Weights,
    index: int,
    cross: Callable | None = None,
    cross_norm: ArrayMap | None = None,
) -> functools.partial:
    """Return a block, a function of the stream, its rotation and `Attend`; see `block`."""
    own = weights.part("attention")
    maps = SimpleNamespace(
        query_key_value=own.affine("query_key_value"),
        output=own.affine("output"),
        query_norm=head_norm(ops, config, own.part("query_norm")),
        key_norm=head_norm(ops, config, own.part("key_norm")),
    )
    inner = SimpleNamespace(
        inner=weights.affine("feed_forward", "inner"),
        output=weights.affine("feed_forward", "output"),
    )
    p = SimpleNamespace(
        pre=config.norm_position == "pre",
        dropout=unchanged,
        attention=functools.partial(attention, ops, maps, Heads.of(config, index)),
        attention_norm=norm_over_arrays(ops, config, weights.part("attention_norm")),
        cross=cross,
        cross_norm=cross_norm,
        feed_forward=functools.partial(feed_forward, ops, inner, config.activation),
        feed_forward_norm=norm_over_arrays(ops, config, weights.part("feed_forward_norm")),
    )
    return functools.partial(block, p)


def norm_over_arrays(ops: Ops, config: TransformerConfig, weights: Weights) -> ArrayMap:
    """Return a normalisation of the stream; nothing where none is stored."""
    if config.norm == "rmsnorm" or not weights:
        return head_norm(ops, config, weights)
    settings = {"gain": weights.weight, "bias": weights.get("bias"), "eps": config.norm_eps}
    return functools.partial(ops.layer_norm, **settings)


def head_norm(ops: Ops, config: TransformerConfig, weights: Weights) -> ArrayMap:
    """Return a root mean square normalisation; nothing where none is stored."""
    if not weights:
        return unchanged
    return functools.partial(ops.rms_norm, gain=weights.weight, eps=config.norm_eps)


def norm_shapes(config: TransformerConfig, name: str) -> Shapes:
    """Return the shapes of the weights of a normalisation of the stream."""
    shapes: Shapes = {f"{name}.weight": (config.hidden_size,)}
    biased = config.norm == "layernorm" and config.bias
    return shapes | ({f"{name}.bias": (config.hidden_size,)} if biased else {})


def block_shapes(config: TransformerConfig, name: str) -> Shapes:
    """Return the shapes of a block's weights."""
    size, inner, heads = config.hidden_size, config.feed_forward_size, Heads.of(config, 0)
    gated = ACTIVATIONS[config.activation][1]
    maps = (
        ("attention.query_key_value", size, sum(heads.widths), config.bias or config.qkv_bias),
        ("attention.output", heads.widths[0], size, config.bias),
        ("feed_forward.inner", size, (1 + gated) * inner, config.bias),
        ("feed_forward.output", inner, size, config.bias),
    )
    shapes: Shapes = {}
    for part, *about in maps:
        shapes |= linear_shapes(f"{name}.{part}", *about)
    if config.qk_norm:
        shapes |= {f"{name}.attention.{x}_norm.weight": (heads.width,) for x in ("query", "key")}
    for part in ("attention_norm", "feed_forward_norm"):
        shapes |= norm_shapes(config, f"{name}.{part}")
    return shapes
