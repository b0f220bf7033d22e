"""Bidirectional recurrent sentence encoder, over arrays or tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seqgen.engines.ops import Leaf, ops_of
from seqgen.engines.parts import NestedPart, Piece, Pieces, Table
from seqgen.models.recurrent.settings import recurrent_cell
from seqgen.models.seq2seq.layers import SourceLayers, stack_cells
from seqgen.models.seq2seq.recurrent_equations import DIRECTIONS
from seqgen.plugins.labels.models.labelling import ArrayEncoder, at_ends
from seqgen.plugins.labels.models.settings import BiRNNConfig
from seqgen.settings import require


class BothEnds:
    """Bidirectional recurrent layers, each computing [h->; h<-] (Schuster and Paliwal 1997).

    The last state of a sentence is that of the forward layer at its end beside that of the
    backward layer at its beginning.

    With features_at=first, the last `beside` numbers of each vector that it reads in the place of
    a token are h_LM, the features of a language model, and the second layer or the head reads
    [h->_k,1; h<-_k,1; h_LM,k] (Peters et al. 2017, section 2.4).

    Attributes:
        beside: the width of what is joined to the first layer's output; 0 for nothing.
        size: the width of the features.
    """

    beside: int
    size: int

    def pieces(self, config: BiRNNConfig, read: int | None = None) -> Pieces:
        """Declare the encoder's weights; see `SentenceEncoder`."""
        at_first = config.features_at == "first"
        require(read is not None or not at_first, "features_at=first needs --features")
        directions = DIRECTIONS[config.directions]
        own = config.embedding_size or config.hidden_size
        self.beside = read - own if at_first else 0
        width = (read or own) - self.beside  # that the first layer reads
        cell = replace(recurrent_cell(config), hidden_size=config.hidden_size // len(directions))
        layers = stack_cells(cell, width, len(directions), self.beside)
        self.size = sum(one.sizes[0] for one in layers[-1]) + self.beside * (len(layers) == 1)
        inputs = Piece() if read else Table(config.vocab_size, width)
        return {"encoder": NestedPart(SourceLayers, inputs, layers, directions)}

    def features(self, values: Leaf, lengths: Sequence[int]) -> tuple[Leaf, Leaf]:
        """Compute features and last states of sentences; see `SentenceEncoder.forward`."""
        beside = None
        if self.beside:
            values, beside = values[..., : -self.beside], values[..., -self.beside :]
        features, final = self.encoder(values, lengths, beside)
        last = final[-1][0]
        if last.shape[1] < self.size:  # one layer, whose output has the features beside it
            last = ops_of(last).join(last, at_ends(beside, lengths))
        return features, last


class BiRNNArrays(BothEnds, ArrayEncoder):
    """Array version of `BiRNN`."""
