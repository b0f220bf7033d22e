"""Recurrent layers that read a sentence from both ends, over arrays or tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seqgen.configs import require
from seqgen.models.encoders.array_model import ArrayEncoder
from seqgen.models.encoders.config import BiRNNConfig
from seqgen.models.encoders.labelling import at_ends
from seqgen.models.engines.ops import Leaf, ops_of
from seqgen.models.engines.parts import Made, Piece, Pieces, Table
from seqgen.models.recurrent.named_cell import recurrent_cell
from seqgen.models.seq2seq.recurrent_config import DIRECTIONS, stacked
from seqgen.models.seq2seq.source_layers import SourceLayers


class SentenceLayout:
    """How wide the parts of a `BiRNN` are.

    Args:
        config: of the model.
        read: the width of the vectors that it reads; None where it reads tokens.

    Attributes:
        cell: the configuration of its cells, in the size of one direction.
        directions: which ways it reads.
        beside: the width of the vectors that are joined to the first layer's output.
        input_size: the width of what the first layer reads.
        encoder: for each layer the equations of its directions.
        size: the width of the features.
    """

    def __init__(self, config: BiRNNConfig, read: int | None = None) -> None:
        at_first = config.features_at == "first"
        require(read is not None or not at_first, "features_at=first needs --features")
        self.directions = DIRECTIONS[config.directions]
        units = config.hidden_size // len(self.directions)
        self.cell = replace(recurrent_cell(config), hidden_size=units)
        size = config.embedding_size or config.hidden_size
        width = size if read is None else read
        self.beside = width - size if at_first else 0
        self.input_size = width - self.beside
        self.encoder = stacked(self.cell, self.input_size, len(self.directions), self.beside)
        self.size = sum(one.sizes[0] for one in self.encoder[-1])
        self.size += self.beside * (len(self.encoder) == 1)


class BothEnds:
    """In every layer [h->; h<-] (Schuster and Paliwal 1997).

    The last state of a sentence is that of the forward layer at its end beside that of the
    backward layer at its beginning.

    With features_at=first, the last `beside` numbers of each vector that it reads in the place of
    a token are h_LM, the features of a language model, and the second layer or the head reads
    [h->_k,1; h<-_k,1; h_LM,k] (Peters et al. 2017, section 2.4).
    """

    beside: int
    size: int

    def pieces(self, config: BiRNNConfig, read: int | None = None) -> Pieces:
        """Return the encoder; see `SentenceEncoder`."""
        layout = SentenceLayout(config, read)
        self.beside, self.size = layout.beside, layout.size
        inputs = Piece() if read else Table(config.vocab_size, layout.input_size)
        about = inputs, layout.encoder, layout.directions
        return {"encoder": Made(SourceLayers, *about)}

    def features(self, values: Leaf, lengths: Sequence[int]) -> tuple[Leaf, Leaf]:
        """See `SentenceEncoder.forward`."""
        beside = None
        if self.beside:
            values, beside = values[..., : -self.beside], values[..., -self.beside :]
        features, final = self.encoder(values, lengths, beside)
        last = final[-1][0]
        if last.shape[1] < self.size:  # one layer, whose output has the features beside it
            last = ops_of(last).join(last, at_ends(beside, lengths))
        return features, last


class BiRNNArrays(BothEnds, ArrayEncoder):
    """`BiRNN` over arrays."""

    @classmethod
    def width(cls, config: BiRNNConfig, read: int | None = None) -> int:
        return SentenceLayout(config, read).size
