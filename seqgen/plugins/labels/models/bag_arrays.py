"""Bag of words or characters, a baseline that ignores word order, over arrays or tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from seqgen.engines.ops import Leaf, ops_of
from seqgen.engines.parts import Piece, Pieces, Table
from seqgen.engines.weights import Shapes, Weights
from seqgen.plugins.labels.models.labelling import ArrayEncoder, at_ends
from seqgen.plugins.labels.models.settings import BagConfig
from seqgen.plugins.labels.settings import Pooling

# The factor of the rolling hash of n-grams, as in fastText.
FACTOR = 116049371


class BagOfTokens:
    """A bag of tokens: the feature of a token is its embedding.

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
        longest, buckets: the settings `ngrams` and `buckets`.
        size: the width of its features.
    """

    pooling: ClassVar[Pooling] = "mean"
    blank: Leaf | None
    longest: int
    buckets: int
    size: int

    def pieces(self, config: BagConfig, read: int | None = None) -> Pieces:
        """Declare the embedding tables of tokens and n-gram buckets; see `SentenceEncoder`."""
        self.longest, self.buckets = config.ngrams, config.buckets
        self.size = size = read or config.embedding_size

        def begin(vectors: Leaf) -> None:
            vectors.uniform_(-1 / size, 1 / size)

        return {
            "embedding": Piece() if read else Table(config.vocab_size, size, begin),
            "of_ngrams": Table(self.buckets, size, begin) if self.longest > 1 else None,
        }

    def features(self, values: Leaf, lengths: Sequence[int]) -> tuple[Leaf, Leaf]:
        """Compute features and last states of sentences; see `SentenceEncoder.forward`."""
        features = self.embedding(values)
        if self.of_ngrams is not None:
            features = self._with_ngrams(features, values, lengths)
        return features, at_ends(features, lengths)

    def _with_ngrams(self, features: Leaf, values: Leaf, lengths: Sequence[int]) -> Leaf:
        """Add to features (S, L, E) the embeddings of the n-grams that end at each token."""
        ops = ops_of(features)
        tokens = ops.ints(values, lengths) - 1  # the start is none
        total, ids, within = tokens, ops.like(values, tokens), None
        if self.blank is not None:
            ids = self._bounded(ids, tokens)
            within = ids != len(self.blank)
        hashed, inner, ends = ids, within, 0
        for n in range(2, self.longest + 1):
            hashed = FACTOR * rolled(hashed) + ids
            buckets = (hashed ^ (hashed >> 15)) % self.buckets
            first = n if within is None else n - 1  # those before include the start
            vectors, count = self.of_ngrams(buckets[:, first:]), ops.at_least(tokens - n + 1, 0)
            if within is not None:
                # White space is only at its ends: so for n - 1, and what was its last is none.
                inner = rolled(within) if n <= 3 else rolled(inner) & rolled(within)
                there = (inner | within if n == 2 else inner)[:, first:]
                vectors, count = vectors * there[..., None], there.sum(1)
            before = ops.zeros(vectors, len(ids), min(first, ids.shape[1]), vectors.shape[-1])
            ends = ends + ops.along(1, before, vectors)
            total = total + count
        if within is not None:  # what ends after the last token counts as its own
            last = ops.count(ids, ids.shape[1] - 1) == tokens[:, None]
            ends = ends[:, :-1] + ends[:, 1:] * last[..., None]
        share = ops.like(tokens, features) / ops.like(ops.at_least(total, 1), features)
        return (features + ends) * ops.where(total > 0, share, 1.0)[:, None, None]

    def _bounded(self, ids: Leaf, tokens: Leaf) -> Leaf:
        """Replace white space, start and padding in ids (S, L) by V, with one more column of V."""
        ops, column = ops_of(ids), (len(ids), 1)
        place = ops.count(ids, ids.shape[1] + 1)
        blank = ops.along(1, self.blank[ids], ops.zeros(self.blank, *column))
        outside = (place == 0) | (place > tokens[:, None])
        longer = ops.along(1, ids, ops.zeros(ids, *column))
        return ops.where(blank | outside, len(self.blank), longer)


def rolled(x: Leaf) -> Leaf:
    """Rotate x (S, L) by one position to the right; the last column becomes the first."""
    return ops_of(x).along(1, x[:, -1:], x[:, :-1])


class BagArrays(BagOfTokens, ArrayEncoder):
    """Array version of `Bag`."""

    table = "embedding.weight"

    def __init__(self, config: BagConfig, weights: Weights, read: int | None = None) -> None:
        super().__init__(config, weights, read)
        self.blank = weights.get("blank")

    @classmethod
    def shapes(cls, config: BagConfig, read: int | None = None) -> Shapes:
        blank: Shapes = {"blank": (config.vocab_size,)} if config.within_words else {}
        return super().shapes(config, read) | blank
