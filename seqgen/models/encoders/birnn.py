"""A bidirectional recurrent encoder of sentences, of any cell."""

from __future__ import annotations

from seqgen.models.encoders.birnn_arrays import BothEnds
from seqgen.models.encoders.sentence_encoder import OwnEncoder


class BiRNN(BothEnds, OwnEncoder):
    """The registry's `birnn`; see `BothEnds`."""
