"""Recurrent encoder-decoders: a source becomes a thought vector, or a memory to attend over."""

from __future__ import annotations

from torch import Tensor, nn

from seqgen.configs import require
from seqgen.models.dropout import Dropout
from seqgen.models.engines.array_steps import ArraySteps
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.engines.tensor_products import as_tensor
from seqgen.models.seq2seq.attention import SCORES, Fertility, Score
from seqgen.models.seq2seq.encoder_decoder import EncoderDecoder, source_input
from seqgen.models.seq2seq.encoders import Bridge, PlainEncoder, RecurrentDecoder, RecurrentEncoder
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.recurrent_arrays import RecurrentFromSource, Seq2SeqArrays
from seqgen.models.seq2seq.recurrent_config import Layout, Seq2SeqConfig
from seqgen.models.seq2seq.state import Seq2SeqState


class Seq2Seq(RecurrentFromSource, ArraySteps, EncoderDecoder):
    """The registry's `seq2seq`; see `RecurrentFromSource`."""

    config: Seq2SeqConfig
    arrays = Seq2SeqArrays

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config, layout = config, Layout(config)
        self.feature_size = layout.feature_size
        self.embedding = nn.Embedding(config.vocab_size, config.input_size)
        self.head = Linear(self.feature_size, config.vocab_size)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if config.tie_weights:
            self.embedding.weight = self.head.weight
        self.decoder = RecurrentDecoder(layout.decoder[0].input_size, layout.cell)
        inputs = source_input(config, config.input_size, self.embedding)
        if layout.encoder:
            about = config.input_size, layout.source_cell, layout.directions
            self.encoder = RecurrentEncoder(inputs, *about)
        else:
            self.encoder = PlainEncoder(inputs, [len(parts) for parts in layout.begins])
        self.bridge = Bridge(layout.bridge) if layout.bridge else None
        self.alignment = self._alignment(layout)
        self.fertility = Fertility(layout.source_size) if config.coverage else None
        self.output_dropout = Dropout(config.dropout, config.dropout_shares)
        self.combine = None
        if layout.combined is not None:
            self.combine = Linear(*layout.combined, bias=False)

    def _alignment(self, layout: Layout) -> Score | None:
        config = self.config
        if config.attention == "none":
            return None
        widths = layout.query_size, layout.source_size
        require(
            config.attention != "dot" or widths[0] == widths[1],
            f"attention=dot compares vectors of one width, not of {widths[0]} and {widths[1]}; "
            "use attention=general",
        )
        more = {"coverage": True} if config.coverage else {}
        return SCORES[config.attention](*widths, config.scaled, **more)

    def mask(self, rows: int) -> Tensor | None:
        return self.output_dropout.shared_mask(rows, self.feature_size, self.head.weight)

    def hidden(
        self, tokens: Tensor, state: Seq2SeqState | Memory | None
    ) -> tuple[Tensor, Seq2SeqState]:
        if isinstance(state, Seq2SeqState):
            state = state.map(as_tensor)
        features, _, state = self.run(tokens, state)
        return features, state
