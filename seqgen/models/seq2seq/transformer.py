"""The encoder-decoder transformer (Vaswani et al. 2017), from its first form to a recent one."""

from __future__ import annotations

import torch
from torch import Tensor

from seqgen.models.seq2seq.base import require_memory
from seqgen.models.seq2seq.encoder_decoder import EncoderDecoder
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.reading import ContextFromSource, MemoryCache, Reading
from seqgen.models.seq2seq.transformer_arrays import Seq2SeqTransformerArrays
from seqgen.models.seq2seq.transformer_config import Seq2SeqTransformerConfig
from seqgen.models.transformer.model import Transformer, initialise


class Seq2SeqTransformer(ContextFromSource, Transformer, EncoderDecoder):
    """The registry's `seq2seq-transformer`.

    Its decoder is `Transformer`, windows and all, whose blocks read the encoder's features too;
    their keys and values are computed once a source.
    """

    config: Seq2SeqTransformerConfig
    arrays = Seq2SeqTransformerArrays
    quantizable = False  # what is beside a row, such as longer sources, would show
    over_tensors = None  # what runs over tensors alone would have to take the memory too

    def __init__(self, config: Seq2SeqTransformerConfig) -> None:
        super().__init__(config)
        if config.positions == "learned":
            self.source_window = config.source_window
        self.encoder = self.encoder_of(config).module()
        self.share()
        initialise(self, config)

    @torch.no_grad()
    def start(self, memory: Memory, stride: int | None = None) -> MemoryCache:
        return super().start(memory, stride)

    def hidden(
        self, tokens: Tensor, state: MemoryCache | Memory | None
    ) -> tuple[Tensor, MemoryCache | None]:
        if isinstance(state, MemoryCache):
            return self.read(tokens, state)
        reading = Reading(self.attend_within, require_memory(state), self.encoder.attend_to_all)
        first = self.before_text(len(tokens))
        features = self.stacked(*self.in_window(torch.cat([first, tokens], 1)), reading)
        return features[:, first.shape[1] :], None
