"""Recurrent encoder-decoders: the equations of both engines, and the model over arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from seqgen.errors import UsageError
from seqgen.models.engines.arrays import unchanged
from seqgen.models.engines.ops import ArrayOps, Leaf, Ops, padded
from seqgen.models.engines.weights import Shapes, Weights, linear_shapes
from seqgen.models.reader import NeuralArrays
from seqgen.models.recurrent.equation import Parts
from seqgen.models.seq2seq.base import FromSource, require_memory
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.recurrent_config import Layout, Seq2SeqConfig
from seqgen.models.seq2seq.scores import (
    DotScore,
    inverse_fertility,
    read,
    score_over_arrays,
    score_shapes,
)
from seqgen.models.seq2seq.source_layers import (
    SourceLayersArrays,
    SourceVectorsArrays,
    TargetLayers,
    TargetLayersArrays,
    bridge_over_arrays,
    bridged,
    in_time,
    stack_shapes,
)
from seqgen.models.seq2seq.state import Seq2SeqState


class RecurrentFromSource(FromSource):
    """A recurrent decoder, and an encoder whose features it attends to or begins from.

    With h_1 ... h_L the encoder's features, y_t the embedding of a word and s_t the decoder's
    state after it,

        s_t = cell(y_t, s_t-1)
        e_tj = score(s_t, h_j), or score(y_t, h_j) with query=word
        a_t = sum_j softmax(e_t)_j h_j
        features_t = tanh(W [s_t; a_t; thought]), or [s_t; a_t; thought] with readout=concat

    from which the head predicts; what a form does not have is left out, and features_t = s_t
    where that leaves the state alone. That is the order of Luong et al. (2015). In the order of
    Bahdanau et al. (2015), decoder=bahdanau, the source is read before the cell,

        e_tj = score(s_t-1, h_j)
        s_t = cell([y_t; a_t], s_t-1)

    with s_t-1 the last layer's state, before the first word the one that it begins with: made of
    both directions of the encoder, where theirs is tanh(W h_1) of the backward one alone. Their
    readout is readout=maxout, which also reads the word,

        features_t,i = max(m_2i-1, m_2i),  m = W [s_t; a_t; thought; y_t]

    with s_t as in their equation 4 (their appendix A.2.2 prints s_t-1, and has biases nowhere).

    The thought vector is the encoder's last state. The decoder begins with it as its state, or
    reads it before the first word (bridge=input), as captions are written from an image in Vinyals
    et al. (2015), "Show and Tell".

    Attributes:
        feature_size: width of what the head reads.
        bridge, alignment, fertility, combine: None in a form without them.
        output_dropout: of the features, by a mask if it has one for all T.
    """

    config: Seq2SeqConfig
    feature_size: int
    embedding: Callable[[Leaf], Leaf]
    encoder: Callable[[Leaf, Sequence[int]], tuple[Leaf, tuple[Parts, ...]]]
    decoder: TargetLayers
    bridge: Callable[[Sequence[Parts]], tuple[Parts, ...]] | None
    alignment: DotScore | None
    fertility: Callable[[Leaf], Leaf] | None
    combine: Callable[[Leaf], Leaf] | None
    output_dropout: Callable[..., Leaf]

    @property
    def step_by_step(self) -> bool:
        """Whether a step's input depends on the step before it."""
        config = self.config
        return config.input_feeding or config.coverage or config.decoder == "bahdanau"

    def encode(self, values: Leaf, lengths: Sequence[int]) -> Memory:
        encoded, final = self.encoder(values, lengths)
        keys = values = ()
        if self.alignment is not None:
            keys, values = (self.alignment.keys(encoded),), (encoded,)
        if self.fertility is not None:
            keys = (*keys, self.fertility(encoded))
        return Memory(keys, values, self._first(final), list(lengths), list(range(len(lengths))))

    def _first(self, final: Sequence[Parts]) -> tuple[Parts, ...]:
        """Return the states that the decoder begins with, given the encoder's last ones."""
        if self.config.bridge != "input":
            return () if self.bridge is None else self.bridge(final)
        thought = self.bridge([final[-1][:1]])[0][0]  # (S, E)
        rows = len(thought)
        zeros = tuple(layer.start(rows) for layer in self.decoder.layers)
        thought = padded(thought, 1, self.decoder.input_size)
        return self.decoder(thought[:, None], zeros, self.decoder.noise(rows))[1]

    def start(self, memory: Memory, stride: int | None = None) -> Seq2SeqState:
        memory, rows = require_memory(memory), len(memory.owners)
        if self.bridge is None:
            layers = tuple(layer.start(rows) for layer in self.decoder.layers)
        else:
            layers = tuple(tuple(map(memory.of_rows, parts)) for parts in memory.first)
        state = Seq2SeqState(layers, memory)
        if self.config.input_feeding:
            state.fed = self.ops.zeros(self.like, rows, self.feature_size)
        if self.config.coverage:
            state.covered = self.ops.zeros(self.like, rows, memory.width)
        return state

    def attend_in_window(self, tokens: Leaf, memory: Memory) -> Leaf:
        if self.alignment is None:
            raise UsageError("this model has no attention; train one without attention=none")
        _, alpha, _ = self.run(tokens, memory)
        return alpha[:, None, None]  # (B, 1, 1, T, L)

    def mask(self, rows: int) -> Leaf | None:
        """Return what a call drops of the features, if it is the same for all T."""
        return None

    def run(
        self, tokens: Leaf, state: Seq2SeqState | Memory | None
    ) -> tuple[Leaf, Leaf | None, Seq2SeqState]:
        """Read tokens (B, T); return features (B, T, H), alpha (B, T, L), the state after."""
        if not isinstance(state, Seq2SeqState):
            state = self.start(state)
        x = self.embedding(tokens)  # (B, T, E)
        rows, length = tokens.shape
        noise, mask = self.decoder.noise(rows), self.mask(rows)
        if length == 1 or not self.step_by_step:
            return self._advance(x, state, noise, mask)
        features, weights = [], []
        for x_t in in_time(x, pairwise(range(length + 1))):
            made, alpha, state = self._advance(x_t, state, noise, mask)
            features.append(made)
            weights.append(alpha)
        alphas = None if self.alignment is None else self.ops.along(1, *weights)
        return self.ops.along(1, *features), alphas, state

    def _advance(
        self, x: Leaf, state: Seq2SeqState, noise: Sequence[Any], mask: Leaf | None
    ) -> tuple[Leaf, Leaf | None, Seq2SeqState]:
        """Take embedded words x (B, T, E), one of them where the model is `step_by_step`.

        Args:
            x: the words.
            state: before them.
            noise: what the call drops in the decoder.
            mask: of the features, if it is one for all T.
        """
        ops, config, memory = self.ops, self.config, state.memory
        inputs = [x] if state.fed is None else [x, state.fed[:, None]]
        if config.decoder == "bahdanau":
            context, alpha = self._attended(state.layers[-1][0][:, None], x, state)
            inputs.append(context)
        s, layers = self.decoder(self._joined(inputs), state.layers, noise)  # (B, T, H)
        if config.decoder == "luong":
            context, alpha = self._attended(s, x, state)
        parts, covered = [s] if context is None else [s, context], state.covered
        if covered is not None:
            covered = covered + alpha[:, 0] * memory.of_rows(memory.keys[1])[..., 0]
        if config.bridge == "each":
            thought = memory.of_rows(memory.first[-1][0])[:, None]  # (B, 1, H)
            parts.append(ops.expand(thought, *s.shape[:2], thought.shape[-1]))
        if config.readout == "maxout":
            pairs = self.combine(self._joined([*parts, x]))
            features = ops.most(pairs.reshape(*x.shape[:2], -1, 2), -1)
        else:
            features = self._joined(parts)
            if self.combine is not None:
                features = ops.tanh(self.combine(features))
        features = self.output_dropout(features, mask)
        fed = None if state.fed is None else features[:, -1]
        return features, alpha, Seq2SeqState(layers, memory, fed, covered)

    def _attended(self, s: Leaf, x: Leaf, state: Seq2SeqState) -> tuple[Leaf | None, Leaf | None]:
        """Return a (B, T, H) and alpha (B, T, L) by states s or words x; None without attention."""
        if self.alignment is None:
            return None, None
        past = None if state.covered is None else state.covered[:, None]
        return read(self.alignment, s if self.config.query == "state" else x, state.memory, past)

    def _joined(self, parts: Sequence[Leaf]) -> Leaf:
        """Return vectors side by side, in the type of the first."""
        like = parts[0]
        return like if len(parts) == 1 else self.ops.join(*(self.ops.like(p, like) for p in parts))


class Seq2SeqArrays(RecurrentFromSource, NeuralArrays):
    """`RecurrentFromSource` over arrays.

    Args:
        config: of the model.
        weights: see `shapes`.
    """

    ops: ClassVar[Ops] = ArrayOps

    def __init__(self, config: Seq2SeqConfig, weights: Weights) -> None:
        self.config, layout = config, Layout(config)
        self.feature_size, self.output_dropout = layout.feature_size, unchanged
        self.vectors = table = weights["embedding.weight"]
        self.embedding, self.dtype = table.__getitem__, table.dtype
        self.head = weights.affine("head")
        self.decoder = TargetLayersArrays(layout, weights.part("decoder"))
        own = weights.part("encoder")
        inputs = config.source_over_arrays(own)
        self.encoder = SourceVectorsArrays(layout, inputs)
        if layout.encoder:
            self.encoder = SourceLayersArrays(inputs, layout.encoder, layout.directions, own)
        self.bridge = self.fertility = self.combine = None
        if layout.bridge:
            maps = bridge_over_arrays(layout, weights.part("bridge"))
            self.bridge = functools.partial(bridged, maps)
        self.alignment = score_over_arrays(layout, weights.part("alignment"))
        if config.coverage:
            map_ = weights.affine("fertility", "map")
            self.fertility = functools.partial(inverse_fertility, ArrayOps, map_)
        if layout.combined is not None:
            self.combine = weights.affine("combine")

    @staticmethod
    def shapes(config: Seq2SeqConfig) -> Shapes:
        layout = Layout(config)
        shapes = {"embedding.weight": (config.vocab_size, config.input_size)}
        shapes |= linear_shapes("head", layout.feature_size, config.vocab_size)
        shapes |= config.source_shapes(config.input_size)
        if layout.combined is not None:
            shapes |= linear_shapes("combine", *layout.combined, bias=False)
        return shapes | stack_shapes(layout) | score_shapes(layout)

    def hidden(self, tokens: np.ndarray, state: Any) -> tuple[np.ndarray, Seq2SeqState]:
        features, _, state = self.run(tokens, state)
        return features, state
