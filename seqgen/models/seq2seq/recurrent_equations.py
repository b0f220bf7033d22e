"""Recurrent encoder-decoder with attention, over arrays or tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from seqgen.engines.ops import Leaf, padded
from seqgen.engines.parts import DropoutPiece, Linear, NestedPart, Piece, Pieces, Table, glorot
from seqgen.errors import UsageError
from seqgen.models.recurrent.cells.equation import Parts
from seqgen.models.recurrent.settings import recurrent_cell
from seqgen.models.seq2seq.attention import AdditiveScore, DotScore, Fertility, GeneralScore, attend
from seqgen.models.seq2seq.from_source import FromSource, require_memory
from seqgen.models.seq2seq.layers import (
    Bridge,
    SourceLayers,
    SourceVectors,
    TargetLayers,
    split_time,
    stack_cells,
)
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.state import State
from seqgen.settings.setting import require

if TYPE_CHECKING:
    from seqgen.models.seq2seq.settings import Seq2SeqConfig


@dataclass
class Seq2SeqState(State):
    """State of a recurrent decoder.

    Attributes:
        layers: for each layer, the parts (B, H) of its cell.
        memory: of the sources, with B rows.
        fed: the features (B, H) of the step before, with input feeding.
        covered: how much of each place has been read, (B, L), with coverage.
    """

    layers: tuple[tuple[Leaf, ...], ...]
    memory: Memory
    fed: Leaf | None = None
    covered: Leaf | None = None

    @classmethod
    def cat(cls, states: Sequence[Seq2SeqState]) -> Seq2SeqState:
        """Join rows whose sources may have different widths."""
        size = max(state.memory.width for state in states)
        return super().cat([state._widened(size) for state in states])

    def _widened(self, size: int) -> Seq2SeqState:
        known = self.covered is None
        return self if known else replace(self, covered=padded(self.covered, 1, size))


class RecurrentFromSource(FromSource):
    """Recurrent encoder-decoder, with attention or a thought vector.

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

    def pieces(self, config: Seq2SeqConfig) -> Pieces:
        cell, embedded = recurrent_cell(config), config.input_size
        size, source_size = cell.equation.widths(cell)[0], embedded
        directions, layers = DIRECTIONS[config.encoder], []
        if directions:
            half = replace(cell, hidden_size=config.hidden_size // len(directions))
            layers = stack_cells(half, embedded, len(directions))
            source_size = sum(one.sizes[0] for one in layers[-1])
        joined = size + source_size * (config.attention != "none")
        joined += size * (config.bridge == "each")
        self.feature_size = joined if config.readout == "concat" else config.hidden_size
        beside = self.feature_size * config.input_feeding
        beside += source_size * (config.decoder == "bahdanau")
        decoder = [one for (one,) in stack_cells(cell, embedded + beside)]
        begins = [one.sizes for one in decoder]
        ends = [(source_size,) * len(parts) for parts in begins]
        inputs = config.source_inputs(embedded)
        encoder = NestedPart(SourceVectors, inputs, begins)
        if directions:
            encoder = NestedPart(SourceLayers, inputs, layers, directions)
            ends = [tuple(map(sum, zip(*(one.sizes for one in x), strict=True))) for x in layers]
        bridge = [[*zip(*pair, strict=True)] for pair in zip(ends, begins, strict=True)]
        if config.bridge == "input":
            bridge = [[(ends[-1][0], embedded)]]
        combine = None
        if config.readout == "maxout":
            combine = Linear(joined + embedded, 2 * self.feature_size, bias=False)
        elif joined != self.feature_size:
            combine = Linear(joined, self.feature_size, bias=False)
        query_size = size if config.query == "state" else embedded
        return {
            "embedding": Table(config.vocab_size, embedded),
            "head": Linear(self.feature_size, config.vocab_size, init=glorot),
            "decoder": NestedPart(TargetLayers, decoder),
            "encoder": encoder,
            "bridge": None if config.bridge == "none" else NestedPart(Bridge, bridge),
            "alignment": attention_score(config, query_size, source_size),
            "fertility": NestedPart(Fertility, source_size) if config.coverage else None,
            "output_dropout": DropoutPiece(config.dropout, config.dropout_shares),
            "combine": combine,
        }

    @property
    def step_by_step(self) -> bool:
        """Whether a step's input depends on the step before."""
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
        """Compute the decoder's initial states from the encoder's final states."""
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

    def hidden(
        self, tokens: Leaf, state: Seq2SeqState | Memory | None
    ) -> tuple[Leaf, Seq2SeqState]:
        features, _, state = self.run(tokens, state)
        return features, state

    def run(
        self, tokens: Leaf, state: Seq2SeqState | Memory | None
    ) -> tuple[Leaf, Leaf | None, Seq2SeqState]:
        """Decode tokens (B, T): features (B, T, H), attention (B, T, L), new state."""
        if not isinstance(state, Seq2SeqState):
            state = self.start(state)
        x = self.embedding(tokens)  # (B, T, E)
        rows, length = tokens.shape
        noise = self.decoder.noise(rows)
        mask = self.output_dropout.shared_mask(rows, self.feature_size, self.like)
        if length == 1 or not self.step_by_step:
            return self._advance(x, state, noise, mask)
        features, weights = [], []
        for x_t in split_time(x, pairwise(range(length + 1))):
            made, alpha, state = self._advance(x_t, state, noise, mask)
            features.append(made)
            weights.append(alpha)
        alphas = None if self.alignment is None else self.ops.along(1, *weights)
        return self.ops.along(1, *features), alphas, state

    def _advance(
        self, x: Leaf, state: Seq2SeqState, noise: Sequence[Any], mask: Leaf | None
    ) -> tuple[Leaf, Leaf | None, Seq2SeqState]:
        """Decode embedded words x (B, T, E); one of them if `step_by_step`.

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
        """Attend by states s or words x: (B, T, H) and (B, T, L); None without attention."""
        if self.alignment is None:
            return None, None
        past = None if state.covered is None else state.covered[:, None]
        return attend(self.alignment, s if self.config.query == "state" else x, state.memory, past)

    def _joined(self, parts: Sequence[Leaf]) -> Leaf:
        """Concatenate vectors in the data type of the first."""
        like = parts[0]
        return like if len(parts) == 1 else self.ops.join(*(self.ops.like(p, like) for p in parts))


# The directions in which each kind of encoder reads: False from the left, True from the right.
DIRECTIONS = {"forward": (False,), "reversed": (True,), "bidirectional": (False, True), "none": ()}
SCORES = {"dot": DotScore, "general": GeneralScore, "additive": AdditiveScore}


def attention_score(config: Seq2SeqConfig, query_size: int, source_size: int) -> Piece | None:
    """Choose the attention score of a model; None without attention."""
    if config.attention == "none":
        return None
    require(
        config.attention != "dot" or query_size == source_size,
        f"attention=dot compares vectors of one width, not of {query_size} and {source_size}; "
        "use attention=general",
    )
    score = SCORES[config.attention]
    return NestedPart(score, query_size, source_size, config.scaled, config.coverage)
