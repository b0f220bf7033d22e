"""A bidirectional transformer encoder of sentences."""

from __future__ import annotations

from torch import nn

from seqgen.models.encoders.config import EncoderConfig
from seqgen.models.encoders.sentence_encoder import SentenceEncoder
from seqgen.models.encoders.transformer_arrays import BlocksOverSentences
from seqgen.models.network import groups_in_order
from seqgen.models.seq2seq.transformer import TransformerEncoder
from seqgen.models.transformer.model import initialise


class SentenceTransformer(BlocksOverSentences, SentenceEncoder):
    """The registry's `encoder`; see `BlocksOverSentences`.

    Initialisation is that of `Transformer`.
    """

    forward = BlocksOverSentences.features

    def __init__(self, config: EncoderConfig, width: int | None = None) -> None:
        super().__init__()
        self.size = config.hidden_size
        # Rotations and sinusoids have no end; positions that are learned do.
        self.window = config.window if config.positions == "learned" else None
        size = config.embedding_width
        inputs = nn.Linear(width, size) if width else nn.Embedding(config.vocab_size, size)
        self.encoder = TransformerEncoder(config, inputs)
        initialise(self, config)

    @property
    def embedding(self) -> nn.Module:
        """The encoder's."""
        return self.encoder.inputs

    def layers_in_order(self) -> list[list[nn.Module]]:
        return groups_in_order(self.encoder)
