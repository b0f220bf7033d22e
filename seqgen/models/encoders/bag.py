"""A bag of words, or of characters: the baseline that knows no order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seqgen.configs import SHARED_SEARCH, ranges, require, setting
from seqgen.configs.model import Pooling, SentenceConfig
from seqgen.models.encoders.sentence_encoder import SentenceEncoder, at_ends
from seqgen.registry import SHARED_DOCS

# The factor of the rolling hash of n-grams, as in fastText.
FACTOR = 116049371


@dataclass(frozen=True, kw_only=True)
class BagConfig(SentenceConfig):
    """A vector for each token and nothing else."""

    recipe: ClassVar[Mapping[str, Any]] = {**SentenceConfig.recipe, "lr": 2e-2}

    embedding_size: int = setting("Width of the vectors.", 100, ranges.WIDTHS)
    dropout: float = setting(
        SHARED_DOCS["dropout"], 0.0, ranges.SHARES_BELOW_1, search=SHARED_SEARCH["dropout"]
    )

    ngrams: int = setting(
        "Also read the n-grams of 2 to so many tokens, hashed into `buckets` vectors (Joulin et "
        "al. 2017): word n-grams, or character n-grams with --tokenizer char. 1 reads none, and "
        "knows no order.",
        1,
        low=1,
        high=16,
    )
    buckets: int = setting("Number of vectors that n-grams share.", 1 << 16, ranges.TOKENS)

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return False  # looking vectors up takes longer than products with them


class Bag(SentenceEncoder):
    """The registry's `bag`: the feature of a token is its embedding.

    A classifier reads their mean, so that its logits are linear in the counts of the tokens, as in
    Joulin et al. (2017), "Bag of tricks for efficient text classification". A tagger predicts
    each word's tag from the word alone.

    With `ngrams`, the embeddings of the n-grams that end at a token are added to its own, and the
    sum is scaled by T / (number of tokens and n-grams), T the number of tokens. So the mean of the
    features is that of the embeddings of all tokens and n-grams, as in the paper. An n-gram of the
    ids v_1 ... v_n has the bucket

        h_1 = v_1,  h_i = FACTOR h_i-1 + v_i,  bucket = (h_n xor h_n >> 15) mod buckets

    in signed integers of 64 bits. No n-gram includes the start symbol.
    """

    pooling: ClassVar[Pooling] = "mean"

    def __init__(self, config: BagConfig, width: int | None = None) -> None:
        super().__init__()
        self.size, self.embedding = width or config.embedding_size, nn.Identity()
        if width is None:
            self.embedding = nn.Embedding(config.vocab_size, self.size)
            nn.init.uniform_(self.embedding.weight, -1 / self.size, 1 / self.size)
        self.longest, self.of_ngrams = config.ngrams, None
        if config.ngrams > 1:
            require(
                width is None, "ngrams are of tokens, and --features reads vectors: leave one out"
            )
            self.of_ngrams = nn.Embedding(config.buckets, self.size)
            nn.init.uniform_(self.of_ngrams.weight, -1 / self.size, 1 / self.size)

    def forward(self, values: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        features = self.embedding(values)
        if self.of_ngrams is not None:
            features = self._with_ngrams(features, values, lengths)
        return features, at_ends(features, lengths)

    def _with_ngrams(self, features: Tensor, values: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return features (S, L, E) of ids (S, L) with those of the n-grams that end there."""
        tokens = torch.tensor(lengths, device=values.device) - 1  # the start is none
        total, hashed = tokens, values.long()
        for n in range(2, self.longest + 1):
            hashed = FACTOR * hashed.roll(1, 1) + values
            buckets = (hashed ^ (hashed >> 15)).remainder(self.of_ngrams.num_embeddings)
            vectors = self.of_ngrams(buckets[:, n:])  # those before include the start
            features = features + nn.functional.pad(vectors, (0, 0, min(n, values.shape[1]), 0))
            total = total + (tokens - n + 1).clamp(min=0)
        scale = torch.where(total > 0, tokens / total.clamp(min=1), 1.0)
        return features * scale[:, None, None].to(features.dtype)
