"""A bag of words, or of characters: the baseline that knows no order."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from seqgen.configs import require
from seqgen.models.encoders.bag_arrays import BagOfTokens
from seqgen.models.encoders.config import BagConfig
from seqgen.models.encoders.sentence_encoder import SentenceEncoder
from seqgen.models.engines.parts import fill


class Bag(BagOfTokens, SentenceEncoder):
    """The registry's `bag`; see `BagOfTokens`."""

    def __init__(self, config: BagConfig, width: int | None = None) -> None:
        super().__init__()
        require(
            width is None or config.ngrams == 1,
            "ngrams are of tokens, and --features reads vectors: leave one out",
        )
        fill(self, self.pieces(config, width))
        blank = torch.zeros(config.vocab_size, dtype=torch.bool) if config.within_words else None
        self.register_buffer("blank", blank)

    def spell(self, words: Iterable[str], spelled_out: bool) -> None:
        if self.blank is not None:
            require(spelled_out, "within_words is for characters: add --tokenizer char")
            self.blank.copy_(torch.tensor([word.isspace() for word in words]))
