"""A bag of words, or of characters: the baseline that knows no order."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from seqgen.configs import require
from seqgen.models.encoders.bag_arrays import BagOfTokens
from seqgen.models.encoders.config import BagConfig
from seqgen.models.encoders.sentence_encoder import SentenceEncoder


class Bag(BagOfTokens, SentenceEncoder):
    """The registry's `bag`; see `BagOfTokens`."""

    forward = BagOfTokens.features

    def __init__(self, config: BagConfig, width: int | None = None) -> None:
        super().__init__()
        self.size, self.embedding = width or config.embedding_size, nn.Identity()
        if width is None:
            self.embedding = nn.Embedding(config.vocab_size, self.size)
            nn.init.uniform_(self.embedding.weight, -1 / self.size, 1 / self.size)
        self.longest, self.buckets, self.of_ngrams = config.ngrams, config.buckets, None
        blank = torch.zeros(config.vocab_size, dtype=torch.bool) if config.within_words else None
        self.register_buffer("blank", blank)
        if config.ngrams > 1:
            require(
                width is None, "ngrams are of tokens, and --features reads vectors: leave one out"
            )
            self.of_ngrams = nn.Embedding(config.buckets, self.size)
            nn.init.uniform_(self.of_ngrams.weight, -1 / self.size, 1 / self.size)

    def spell(self, words: Iterable[str], spelled_out: bool) -> None:
        if self.blank is not None:
            require(spelled_out, "within_words is for characters: add --tokenizer char")
            self.blank.copy_(torch.tensor([word.isspace() for word in words]))
