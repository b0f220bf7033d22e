"""What encoder-decoders have in common as torch modules."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from seqgen.models.base import NeuralLanguageModel
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.engines.ops import Ops
from seqgen.models.engines.tensor_ops import TensorOps
from seqgen.models.seq2seq.base import FromSource
from seqgen.models.seq2seq.config import SourceConfig


class EncoderDecoder(FromSource, NeuralLanguageModel):
    """See `FromSource`; `model(targets, memory)` is the training call."""

    ops: ClassVar[Ops] = TensorOps
    encoder: nn.Module

    def layers_in_order(self) -> list[list[nn.Module]]:
        """Return the modules in groups in the order of their use: the encoder comes first.

        What both sides share is the decoder's.
        """
        groups = super().layers_in_order()
        rest = ([module for module in group if module is not self.encoder] for group in groups)
        return [[self.encoder], *(group for group in rest if group)]


def source_input(config: SourceConfig, size: int, embedding: nn.Embedding) -> nn.Module:
    """Return what makes vectors (S, L, size) of source values: an embedding, or a linear map.

    Args:
        config: of the model.
        size: the width of the vectors.
        embedding: the target's, whose matrix may be the source's too.
    """
    if config.source_features is not None:
        return Linear(config.source_features, size)
    of_source = nn.Embedding(config.source_vocab_size or config.vocab_size, size)
    if config.shares_embeddings:
        # The matrix and not the module: torch's functional calls swap a shared module's twice.
        of_source.weight = embedding.weight
    return of_source
