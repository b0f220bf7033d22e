"""A bidirectional recurrent encoder of sentences, of any cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from seqgen.configs import require
from seqgen.models.encoders.config import BiRNNConfig
from seqgen.models.encoders.labelling import at_ends
from seqgen.models.encoders.sentence_encoder import SentenceEncoder
from seqgen.models.network import groups_in_order
from seqgen.models.recurrent.named_cell import recurrent_cell
from seqgen.models.seq2seq.encoders import RecurrentEncoder
from seqgen.models.seq2seq.recurrent_config import DIRECTIONS


class BiRNN(SentenceEncoder):
    """The registry's `birnn`: in every layer [h->; h<-] (Schuster and Paliwal 1997).

    The last state of a sentence is that of the forward layer at its end beside that of the
    backward layer at its beginning.

    With features_at=first, the last `beside` numbers of each vector that it reads in the place of
    a token are h_LM, the features of a language model, and the second layer or the head reads
    [h->_k,1; h<-_k,1; h_LM,k] (Peters et al. 2017, section 2.4).
    """

    def __init__(self, config: BiRNNConfig, width: int | None = None) -> None:
        super().__init__()
        cell = recurrent_cell(config)
        directions = DIRECTIONS[config.directions]
        cell = replace(cell, hidden_size=config.hidden_size // len(directions))
        size, inputs = config.embedding_size or config.hidden_size, nn.Identity()
        if width is None:
            require(config.features_at == "input", "features_at=first needs --features")
            width, inputs = size, nn.Embedding(config.vocab_size, size)
        self.beside = width - size if config.features_at == "first" else 0
        read = width - self.beside
        self.encoder = RecurrentEncoder(inputs, read, cell, directions, self.beside)
        self.size = self.encoder.size

    @property
    def embedding(self) -> nn.Module:
        """The encoder's."""
        return self.encoder.inputs

    def forward(self, values: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        beside = None
        if self.beside:
            values, beside = values.tensor_split([-self.beside], -1)
        features, final = self.encoder(values, lengths, beside)
        last = final[-1][0]
        if last.shape[1] < self.size:  # one layer, whose output has the features beside it
            last = torch.cat([last, at_ends(beside, lengths)], -1)
        return features, last

    def layers_in_order(self) -> list[list[nn.Module]]:
        return groups_in_order(self.encoder)
