"""Recurrent encoder-decoders: a source becomes a thought vector, or a memory to attend over."""

from __future__ import annotations

from torch import Tensor

from seqgen.models.engines.array_steps import ArraySteps
from seqgen.models.engines.parts import fill
from seqgen.models.engines.tensor_products import as_tensor
from seqgen.models.seq2seq.encoder_decoder import EncoderDecoder
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.recurrent_arrays import RecurrentFromSource, Seq2SeqArrays
from seqgen.models.seq2seq.recurrent_config import Seq2SeqConfig
from seqgen.models.seq2seq.state import Seq2SeqState


class Seq2Seq(RecurrentFromSource, ArraySteps, EncoderDecoder):
    """The registry's `seq2seq`; see `RecurrentFromSource`."""

    config: Seq2SeqConfig
    arrays = Seq2SeqArrays

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        fill(self, self.pieces(config))
        self.share()

    def hidden(
        self, tokens: Tensor, state: Seq2SeqState | Memory | None
    ) -> tuple[Tensor, Seq2SeqState]:
        if isinstance(state, Seq2SeqState):
            state = state.map(as_tensor)
        features, _, state = self.run(tokens, state)
        return features, state
