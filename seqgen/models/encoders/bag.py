"""A bag of words, or of characters: the baseline that knows no order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
# The width of the vectors without n-grams, and with them, as in Joulin et al. (2017): each step
# updates all buckets.
WIDTH, WIDTH_OF_NGRAMS = 100, 10


@dataclass(frozen=True, kw_only=True)
class BagConfig(SentenceConfig):
    """A vector for each token and nothing else."""

    recipe: ClassVar[Mapping[str, Any]] = {**SentenceConfig.recipe, "lr": 2e-2}

    embedding_size: int | None = setting(
        "Width of the vectors; by default 100, and 10 with n-grams (Joulin et al. 2017).",
        None,
        ranges.WIDTHS,
    )
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
    within_words: bool = setting(
        "With --tokenizer char, n-grams lie within words, whose beginning and end each count as a "
        "character of them (Bojanowski et al. 2017); by default they cross white space.",
        False,
    )

    def __post_init__(self) -> None:
        if self.embedding_size is None:
            width = WIDTH if self.ngrams == 1 else WIDTH_OF_NGRAMS
            object.__setattr__(self, "embedding_size", width)
        super().__post_init__()
        require(self.ngrams > 1 or not self.within_words, "within_words needs ngrams of 2 or more")

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

    With `within_words`, a symbol stands for the white space around each word, at both ends of the
    text too, and the n-grams are those of the words between two symbols, which they may include:
    of "we do" with n = 3, <we, we>, <do and do> (Bojanowski et al. 2017, section 3.2, whose words
    have a vector of their own as well). So a word that training has not seen has n-grams that it
    has.

    Attributes:
        blank: (V,) bool, which tokens are white space; None without `within_words`.
    """

    pooling: ClassVar[Pooling] = "mean"

    def __init__(self, config: BagConfig, width: int | None = None) -> None:
        super().__init__()
        self.size, self.embedding = width or config.embedding_size, nn.Identity()
        if width is None:
            self.embedding = nn.Embedding(config.vocab_size, self.size)
            nn.init.uniform_(self.embedding.weight, -1 / self.size, 1 / self.size)
        self.longest, self.of_ngrams = config.ngrams, None
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

    def forward(self, values: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        features = self.embedding(values)
        if self.of_ngrams is not None:
            features = self._with_ngrams(features, values, lengths)
        return features, at_ends(features, lengths)

    def _with_ngrams(self, features: Tensor, values: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return features (S, L, E) of ids (S, L) with those of the n-grams that end there."""
        tokens = torch.tensor(lengths, device=values.device) - 1  # the start is none
        total, ids, within = tokens, values.long(), None
        if self.blank is not None:
            ids = self._bounded(ids, tokens)
            within = ids != len(self.blank)
        hashed, inner, ends = ids, within, 0
        for n in range(2, self.longest + 1):
            hashed = FACTOR * hashed.roll(1, 1) + ids
            buckets = (hashed ^ (hashed >> 15)).remainder(self.of_ngrams.num_embeddings)
            first = n if within is None else n - 1  # those before include the start
            vectors, count = self.of_ngrams(buckets[:, first:]), (tokens - n + 1).clamp(min=0)
            if within is not None:
                # White space is only at its ends: so for n - 1, and what was its last is none.
                inner = within.roll(1, 1) if n <= 3 else inner.roll(1, 1) & within.roll(1, 1)
                there = (inner | within if n == 2 else inner)[:, first:]
                vectors, count = vectors * there.unsqueeze(-1), there.sum(1)
            ends = ends + nn.functional.pad(vectors, (0, 0, min(first, ids.shape[1]), 0))
            total = total + count
        if within is not None:  # what ends after the last token counts as its own
            rows = torch.arange(len(tokens), device=tokens.device)
            ends = ends.index_put((rows, tokens), ends[rows, tokens + 1], accumulate=True)[:, :-1]
        scale = torch.where(total > 0, tokens / total.clamp(min=1), 1.0)
        return (features + ends) * scale[:, None, None].to(features.dtype)

    def _bounded(self, ids: Tensor, tokens: Tensor) -> Tensor:
        """Return ids (S, L + 1) with V for white space, for the start and after the last token."""
        place = torch.arange(ids.shape[1] + 1, device=ids.device)
        outside = (place == 0) | (place > tokens[:, None])
        blank = nn.functional.pad(self.blank[ids], (0, 1), value=True)
        return nn.functional.pad(ids, (0, 1)).masked_fill(blank | outside, len(self.blank))
