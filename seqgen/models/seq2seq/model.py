"""Encoder-decoders as torch modules; the equations are in the files of that name."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqgen.engines.tensor_products import as_array
from seqgen.models.array_steps import ArraySteps
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.seq2seq.arrays import Seq2SeqArrays, Seq2SeqTransformerArrays
from seqgen.models.seq2seq.from_source import FromSource, require_memory
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.recurrent_equations import RecurrentFromSource
from seqgen.models.seq2seq.settings import Seq2SeqConfig, Seq2SeqTransformerConfig
from seqgen.models.seq2seq.transformer_equations import ContextFromSource, CrossAttend, MemoryCache
from seqgen.models.transformer.model import Transformer, initialise


class EncoderDecoder(FromSource, NeuralLanguageModel):
    """Encoder-decoder in torch; `model(targets, memory)` is the training call."""

    encoder: nn.Module

    def share(self) -> None:
        """Tie the weights that the configuration declares as shared."""
        if self.config.tie_weights:
            self.embedding.weight = self.head.weight
        if self.config.shares_embeddings:
            # The matrix and not the module: torch's functional calls swap a shared module's twice.
            self.encoder.inputs.weight = self.embedding.weight

    def layers_in_order(self) -> list[list[nn.Module]]:
        """List the modules in groups in order of use: the encoder comes first.

        What both sides share is the decoder's.
        """
        groups = super().layers_in_order()
        rest = ([module for module in group if module is not self.encoder] for group in groups)
        return [[self.encoder], *(group for group in rest if group)]


class Seq2Seq(RecurrentFromSource, ArraySteps, EncoderDecoder):
    """Recurrent encoder-decoder in torch (architecture `seq2seq`)."""

    config: Seq2SeqConfig
    arrays = Seq2SeqArrays

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__(config)
        self.share()


class Seq2SeqTransformer(ContextFromSource, Transformer, EncoderDecoder):
    """Encoder-decoder transformer in torch (architecture `seq2seq-transformer`).

    Its decoder is `Transformer`, windows and all, whose blocks read the encoder's features too;
    their keys and values are computed once a source.
    """

    config: Seq2SeqTransformerConfig
    arrays = Seq2SeqTransformerArrays
    over_tensors = None  # what runs over tensors alone would have to take the memory too

    def __init__(self, config: Seq2SeqTransformerConfig) -> None:
        super().__init__(config)
        if config.positions == "learned":
            self.source_window = config.source_window
        self.encoder = self.encoder_of(config).module()
        self.share()
        initialise(self, config)

    def encode(self, values: Tensor, lengths: Sequence[int]) -> Memory:
        if self.quantized:
            return self.over_arrays().encode(as_array(values), lengths)
        return super().encode(values, lengths)

    @torch.no_grad()
    def start(self, memory: Memory, stride: int | None = None) -> MemoryCache:
        return super().start(memory, stride)

    def hidden(
        self, tokens: Tensor, state: MemoryCache | Memory | None
    ) -> tuple[Tensor, MemoryCache | None]:
        if isinstance(state, MemoryCache):
            return self.read(tokens, state)
        attend = CrossAttend(self.attend_within, require_memory(state), self.encoder.attend_to_all)
        first = self.before_text(len(tokens))
        features = self.stacked(*self.in_window(torch.cat([first, tokens], 1)), attend)
        return features[:, first.shape[1] :], None
