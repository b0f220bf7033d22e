"""A bidirectional recurrent encoder of sentences, of any cell."""

from __future__ import annotations

from torch import nn

from seqgen.models.encoders.birnn_arrays import BothEnds, SentenceLayout
from seqgen.models.encoders.config import BiRNNConfig
from seqgen.models.encoders.sentence_encoder import SentenceEncoder
from seqgen.models.network import groups_in_order
from seqgen.models.seq2seq.encoders import RecurrentEncoder


class BiRNN(BothEnds, SentenceEncoder):
    """The registry's `birnn`; see `BothEnds`."""

    forward = BothEnds.features

    def __init__(self, config: BiRNNConfig, width: int | None = None) -> None:
        super().__init__()
        layout, inputs = SentenceLayout(config, width), nn.Identity()
        if width is None:
            inputs = nn.Embedding(config.vocab_size, layout.input_size)
        self.beside, self.size = layout.beside, layout.size
        self.encoder = RecurrentEncoder(
            inputs, layout.input_size, layout.cell, layout.directions, layout.beside
        )

    @property
    def embedding(self) -> nn.Module:
        """The encoder's."""
        return self.encoder.inputs

    def layers_in_order(self) -> list[list[nn.Module]]:
        return groups_in_order(self.encoder)
