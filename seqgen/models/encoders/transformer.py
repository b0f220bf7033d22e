"""A bidirectional transformer encoder of sentences."""

from __future__ import annotations

from seqgen.models.encoders.config import EncoderConfig
from seqgen.models.encoders.sentence_encoder import OwnEncoder
from seqgen.models.encoders.transformer_arrays import BlocksOverSentences
from seqgen.models.transformer.model import initialise


class SentenceTransformer(BlocksOverSentences, OwnEncoder):
    """The registry's `encoder`; see `BlocksOverSentences`.

    Initialisation is that of `Transformer`.
    """

    def __init__(self, config: EncoderConfig, width: int | None = None) -> None:
        super().__init__(config, width)
        initialise(self, config)
