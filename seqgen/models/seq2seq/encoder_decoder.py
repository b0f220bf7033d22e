"""What encoder-decoders have in common as torch modules."""

from __future__ import annotations

from torch import nn

from seqgen.models.base import NeuralLanguageModel
from seqgen.models.seq2seq.base import FromSource


class EncoderDecoder(FromSource, NeuralLanguageModel):
    """See `FromSource`; `model(targets, memory)` is the training call."""

    encoder: nn.Module

    def share(self) -> None:
        """Let parts share the weights that the configuration says they do."""
        if self.config.tie_weights:
            self.embedding.weight = self.head.weight
        if self.config.shares_embeddings:
            # The matrix and not the module: torch's functional calls swap a shared module's twice.
            self.encoder.inputs.weight = self.embedding.weight

    def layers_in_order(self) -> list[list[nn.Module]]:
        """Return the modules in groups in the order of their use: the encoder comes first.

        What both sides share is the decoder's.
        """
        groups = super().layers_in_order()
        rest = ([module for module in group if module is not self.encoder] for group in groups)
        return [[self.encoder], *(group for group in rest if group)]
