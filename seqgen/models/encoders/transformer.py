"""A bidirectional transformer encoder of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from seqgen.configs.model import Pooling
from seqgen.models.encoders.config import EncoderConfig
from seqgen.models.encoders.labelling import at_ends, require_window
from seqgen.models.encoders.sentence_encoder import SentenceEncoder
from seqgen.models.network import groups_in_order
from seqgen.models.seq2seq.transformer import TransformerEncoder
from seqgen.models.transformer.model import initialise


class SentenceTransformer(SentenceEncoder):
    """The registry's `encoder`: blocks without a causal mask (Vaswani et al. 2017, section 3.1).

    Initialisation is that of `Transformer`.
    """

    pooling: ClassVar[Pooling] = "mean"

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

    def forward(self, values: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        require_window(max(lengths), self.window)
        features, _ = self.encoder(values, lengths)
        return features, at_ends(features, lengths)

    def layers_in_order(self) -> list[list[nn.Module]]:
        return groups_in_order(self.encoder)
