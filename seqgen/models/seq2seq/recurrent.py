"""Recurrent encoder-decoders: a source becomes a thought vector, or a memory to attend over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.configs import require
from seqgen.errors import UsageError
from seqgen.models.base import require_no_graph
from seqgen.models.dropout import Dropout
from seqgen.models.engines.array_steps import ArraySteps
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.recurrent.cell import LayerState
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.named_cell import recurrent_cell
from seqgen.models.seq2seq.attention import Additive, Dot, Fertility, General, Score, read
from seqgen.models.seq2seq.base import (
    EncoderDecoder,
    require_memory,
    source_input,
)
from seqgen.models.seq2seq.encoders import (
    DIRECTIONS,
    Bridge,
    PlainEncoder,
    RecurrentEncoder,
)
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.one_token import RowSeq2Seq
from seqgen.models.seq2seq.recurrent_config import Seq2SeqConfig
from seqgen.models.seq2seq.recurrent_decoder import LayerNoise, RecurrentDecoder
from seqgen.models.seq2seq.state import Seq2SeqState

SCORES: Mapping[str, type[Score]] = {"dot": Dot, "general": General, "additive": Additive}


class Seq2Seq(ArraySteps, EncoderDecoder):
    """The registry's `seq2seq`.

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

    with s_t-1 the last layer's state, before the first word the one that it begins with. Their
    readout is readout=maxout, which also reads the word,

        features_t,i = max(m_2i-1, m_2i),  m = W [s_t; a_t; thought; y_t]

    with s_t as in their equation 4 (their appendix A.2.2 prints s_t-1, and has biases nowhere).

    The thought vector is the encoder's last state. The decoder begins with it as its state, or
    reads it before the first word (bridge=input), as captions are written from an image in Vinyals
    et al. (2015), "Show and Tell".

    Attributes:
        feature_size: width of what the head reads.
    """

    config: Seq2SeqConfig

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        cell = recurrent_cell(config)
        size = cell.equation.widths(cell)[0]
        of_source = config.input_size if config.encoder == "none" else size
        joined = size + of_source * (config.attention != "none") + size * (config.bridge == "each")
        self.feature_size = joined if config.readout == "concat" else config.hidden_size
        self.embedding = nn.Embedding(config.vocab_size, config.input_size)
        self.head = Linear(self.feature_size, config.vocab_size)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if config.tie_weights:
            self.embedding.weight = self.head.weight
        beside = self.feature_size * config.input_feeding
        beside += of_source * (config.decoder == "bahdanau")
        self.decoder = RecurrentDecoder(config.input_size + beside, cell)
        begins = [one.sizes for one in self.decoder.layers]
        self.encoder = self._encoder(cell, begins)
        self.bridge = None
        if config.bridge == "input":
            self.bridge = Bridge([self.encoder.widths[-1][:1]], [(config.input_size,)])
        elif config.bridge != "none":
            self.bridge = Bridge(self.encoder.widths, begins)
        self.alignment = self._alignment()
        self.fertility = Fertility(self.encoder.size) if config.coverage else None
        self.combine, self.output_dropout = None, Dropout(config.dropout, config.dropout_shares)
        if config.readout == "maxout":
            self.combine = Linear(joined + config.input_size, 2 * self.feature_size, bias=False)
        elif joined != self.feature_size:
            self.combine = Linear(joined, self.feature_size, bias=False)

    def _encoder(self, cell: RecurrentConfig, begins: list[tuple[int, ...]]) -> nn.Module:
        config = self.config
        inputs = source_input(config, config.input_size, self.embedding)
        if config.encoder == "none":
            return PlainEncoder(inputs, config.input_size, begins)
        directions = DIRECTIONS[config.encoder]
        cell = replace(cell, hidden_size=config.hidden_size // len(directions))
        return RecurrentEncoder(inputs, config.input_size, cell, directions)

    def _alignment(self) -> Score | None:
        config = self.config
        if config.attention == "none":
            return None
        asks = self.decoder.size if config.query == "state" else config.input_size
        require(
            config.attention != "dot" or asks == self.encoder.size,
            f"attention=dot compares vectors of one width, not of {asks} and {self.encoder.size}; "
            "use attention=general",
        )
        more = {"coverage": True} if config.coverage else {}
        return SCORES[config.attention](asks, self.encoder.size, config.scaled, **more)

    @property
    def step_by_step(self) -> bool:
        """Whether a step's input depends on the step before it."""
        config = self.config
        return config.input_feeding or config.coverage or config.decoder == "bahdanau"

    def encode(self, values: Tensor, lengths: Sequence[int]) -> Memory:
        encoded, final = self.encoder(values, lengths)
        keys = values = ()
        if self.alignment is not None:
            keys, values = (self.alignment.keys(encoded),), (encoded,)
        if self.fertility is not None:
            keys = (*keys, self.fertility(encoded))
        return Memory(keys, values, self._first(final), list(lengths), list(range(len(lengths))))

    def _first(self, final: Sequence[LayerState]) -> tuple[LayerState, ...]:
        """Return the states that the decoder begins with, given the encoder's last ones."""
        if self.config.bridge != "input":
            return () if self.bridge is None else self.bridge(final)
        thought = self.bridge([final[-1][:1]])[0][0]  # (S, E)
        rows = len(thought)
        zeros = tuple(layer.start(rows) for layer in self.decoder.layers)
        thought = F.pad(thought, (0, self.decoder.input_size - thought.shape[1]))
        return self.decoder(thought.unsqueeze(1), zeros, self.decoder.noise(rows))[1]

    def start(self, memory: Memory, stride: int | None = None) -> Seq2SeqState:
        memory, rows = require_memory(memory), len(memory.owners)
        if self.bridge is None:
            layers = tuple(layer.start(rows) for layer in self.decoder.layers)
        else:
            layers = tuple(tuple(map(memory.of_rows, parts)) for parts in memory.first)
        state = Seq2SeqState(layers, memory)
        like = self.head.weight
        if self.config.input_feeding:
            state.fed = like.new_zeros(rows, self.feature_size)
        if self.config.coverage:
            state.covered = like.new_zeros(rows, memory.width)
        return state

    def hidden(
        self, tokens: Tensor, state: Seq2SeqState | Memory | None
    ) -> tuple[Tensor, Seq2SeqState]:
        features, _, state = self._run(tokens, state)
        return features, state

    def step(self, tokens: Sequence[int], state: Seq2SeqState) -> tuple[np.ndarray, Seq2SeqState]:
        if not self.suits_arrays():
            return super().step(tokens, state)
        require_no_graph(state)
        return self.prepared(self._for_rows)(tokens, state)

    def _for_rows(self) -> RowSeq2Seq:
        weights = self.embedding.weight, self.head
        return RowSeq2Seq(self.config, *weights, self.decoder, self.alignment, self.combine)

    def attend_in_window(self, tokens: Tensor, memory: Memory) -> Tensor:
        if self.alignment is None:
            raise UsageError("this model has no attention; train one without attention=none")
        _, alpha, _ = self._run(tokens, memory)
        return alpha[:, None, None]  # (B, 1, 1, T, L)

    def _run(
        self, tokens: Tensor, state: Seq2SeqState | Memory | None
    ) -> tuple[Tensor, Tensor | None, Seq2SeqState]:
        """Read tokens (B, T); return features (B, T, H), alpha (B, T, L), the state after."""
        if not isinstance(state, Seq2SeqState):
            state = self.start(state)
        embedded = self.embedding(tokens)  # (B, T, E)
        features, weights = [], []
        rows, like = len(tokens), self.head.weight
        noise = self.decoder.noise(rows)
        mask = self.output_dropout.shared_mask(rows, self.feature_size, like)
        for x in embedded.split(1, 1) if self.step_by_step else [embedded]:
            made, alpha, state = self._advance(x, state, noise, mask)
            features.append(made)
            weights.append(alpha)
        alphas = None if self.alignment is None else torch.cat(weights, 1)
        return torch.cat(features, 1), alphas, state

    def _advance(
        self,
        x: Tensor,
        state: Seq2SeqState,
        noise: list[LayerNoise],
        mask: Tensor | None,
    ) -> tuple[Tensor, Tensor | None, Seq2SeqState]:
        """Take embedded words x (B, T, E), one of them where the model is `step_by_step`.

        Args:
            x: the words.
            state: before them.
            noise: what the call drops in the decoder.
            mask: of the features, if it is one for all T.
        """
        inputs = [x] if state.fed is None else [x, state.fed.unsqueeze(1)]
        if self.config.decoder == "bahdanau":
            context, alpha = self._attended(state.layers[-1][0].unsqueeze(1), x, state)
            inputs.append(context)
        s, layers = self.decoder(_joined(inputs), state.layers, noise)  # (B, T, H)
        if self.config.decoder == "luong":
            context, alpha = self._attended(s, x, state)
        parts, covered = [s] if context is None else [s, context], state.covered
        if covered is not None:
            taken = alpha[:, 0] * state.memory.of_rows(state.memory.keys[1]).squeeze(-1)
            covered = covered + taken
        if self.config.bridge == "each":
            thought = state.memory.of_rows(state.memory.first[-1][0])  # (B, H)
            parts.append(thought.unsqueeze(1).expand_as(s))
        if self.config.readout == "maxout":
            features = self.combine(_joined([*parts, x])).unflatten(-1, (-1, 2)).amax(-1)
        elif self.combine is not None:
            features = self.combine(_joined(parts)).tanh()
        else:
            features = _joined(parts)
        features = self.output_dropout(features, mask)
        fed = None if state.fed is None else features[:, -1]
        return features, alpha, Seq2SeqState(layers, state.memory, fed, covered)

    def _attended(
        self, s: Tensor, x: Tensor, state: Seq2SeqState
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return a (B, T, H) and alpha (B, T, L) by states s or words x; None without attention."""
        if self.alignment is None:
            return None, None
        past = None if state.covered is None else state.covered.unsqueeze(1)
        return read(self.alignment, s if self.config.query == "state" else x, state.memory, past)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Return vectors side by side, in the type of the first."""
    return parts[0] if len(parts) == 1 else torch.cat([p.to(parts[0].dtype) for p in parts], -1)
