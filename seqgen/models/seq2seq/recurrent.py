"""Recurrent encoder-decoders: a source becomes a thought vector, or a memory to attend over."""

from __future__ import annotations

from seqgen.models.engines.array_steps import ArraySteps
from seqgen.models.seq2seq.encoder_decoder import EncoderDecoder
from seqgen.models.seq2seq.recurrent_arrays import RecurrentFromSource, Seq2SeqArrays
from seqgen.models.seq2seq.recurrent_config import Seq2SeqConfig


class Seq2Seq(RecurrentFromSource, ArraySteps, EncoderDecoder):
    """The registry's `seq2seq`; see `RecurrentFromSource`."""

    config: Seq2SeqConfig
    arrays = Seq2SeqArrays

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__(config)
        self.share()
