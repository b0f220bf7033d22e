"""Attention of the cache and the pointer to the last positions of a text.

What the continuous cache (the plugin `cache`) and the pointer of a recurrent model (`pointer`)
share: both add the weight of a position to the probability of its word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from seqgen.engines.ops import Leaf, ops_of, shifted
from seqgen.models.state import State

# Where a row has no position yet.
NOTHING = -1
# Queries that share one block of keys, at least: fewer make more and smaller products.
FEWEST_TOGETHER = 64


@dataclass
class RecentPositions(State):
    """Features and tokens of the last positions of each row, the newest last.

    Attributes:
        features: (B, n, H), what the head reads there.
        tokens: (B, n) of int64, what was read there; NOTHING before a row's first token.
    """

    features: Leaf
    tokens: Leaf

    @classmethod
    def empty(cls, batch: int, like: Leaf) -> RecentPositions:
        """Create a state without positions, with the data type and width of `like`.

        Args:
            batch: rows B.
            like: (..., H), such as the matrix of the head that reads the features.
        """
        ops = ops_of(like)
        return cls(ops.zeros(like, batch, 0, like.shape[-1]), ops.ints(like, [[]] * batch))

    def extended(self, features: Leaf, tokens: Leaf) -> RecentPositions:
        """Append the positions of features (B, T, H) and tokens (B, T)."""
        pairs = (self.features, features), (self.tokens, tokens)
        return RecentPositions(*(ops_of(new).along(1, old, new) for old, new in pairs))

    def last(self, count: int) -> RecentPositions:
        """Keep the newest `count` positions, or all if there are fewer."""
        first = max(0, self.tokens.shape[1] - count)
        # A copy, since a view would keep the whole text in memory.
        return self.map(lambda x: ops_of(x).copy(x[:, first:]))

    @classmethod
    def cat(cls, states: Sequence[RecentPositions]) -> RecentPositions:
        """Join rows of different lengths, aligned at the newest position."""
        longest = max(state.tokens.shape[1] for state in states)
        return super().cat([state._aligned(longest) for state in states])

    def _aligned(self, length: int) -> RecentPositions:
        missing = length - self.tokens.shape[1]
        features = shifted(self.features, missing, 0)
        return RecentPositions(features, shifted(self.tokens, missing, 0, NOTHING))


@dataclass(frozen=True)
class CacheHits:
    """Scores and words of the W positions that each query may attend to.

    Attributes:
        scores: (B, Q, W), the products of each query with the keys; -inf where it sees none.
        words: (B, Q, W) of int64, the words that go with the keys; 0 where it sees none.
    """

    scores: Leaf
    words: Leaf


def score_recent(queries: Leaf, keys: Leaf, words: Leaf, reach: int) -> CacheHits:
    """Score each query (B, Q, H) against the N keys up to its own position.

    Neighbouring queries see nearly the same keys, so blocks of them share one matrix product, of
    which a band is kept.

    Args:
        queries: (B, Q, H).
        keys: (B, L, H), of any length; the last belongs to the last query, the one before to the
            query before.
        words: (B, L) of int64, or NOTHING where there is no key.
        reach: how many keys N a query sees.
    """
    count, length = queries.shape[1], keys.shape[1]
    reach = max(1, min(reach, length))  # no query sees more than all keys
    together = min(count, max(FEWEST_TOGETHER, reach))
    blocks = -(-count // together)
    width = reach - 1 + together
    after = blocks * together - count
    # A negative number of places cuts off keys that no query sees.
    before = reach - 1 + count - length
    ops, batch = ops_of(queries), len(queries)
    keys = ops.blocks(shifted(keys, before, after), width, together)  # (B, K, H, W)
    words = ops.blocks(shifted(words, before, after, NOTHING), width, together)  # (B, K, W)
    queries = shifted(queries, 0, after).reshape(batch, blocks, together, -1)  # (B, K, C, H)
    with ops.full_precision(queries):
        scores = ops.wide(queries) @ ops.wide(keys)  # (B, K, C, W)
    place, first = ops.count(scores, width), ops.count(scores, together)[:, None]
    seen = (place >= first) & (place < first + reach) & (words >= 0)[:, :, None]
    scores = ops.where(seen, scores, -math.inf)
    words = ops.expand(ops.at_least(words, 0)[:, :, None], *scores.shape)
    return CacheHits(*(x.reshape(batch, -1, width)[:, :count] for x in (scores, words)))


def add_word_weights(log_probs: Leaf, weights: Leaf, words: Leaf) -> Leaf:
    """Add each word's weight to its probability and return log-probabilities.

    Logarithms are taken at the W words alone, and not over the vocabulary.

    Args:
        log_probs: (..., V), finite.
        weights: (..., W), not negative; 0 adds nothing.
        words: (..., W) of int64; a word may be there more than once.
    """
    ops = ops_of(log_probs)
    sums = ops.added_at(ops.zeros(log_probs, *log_probs.shape), words, weights)
    some = weights > 0
    totals = ops.where(some, ops.pick(sums, words), 1)  # of all places of the word
    old = ops.pick(log_probs, words)
    gained = ops.log_of_sum(old, ops.log(totals)) - old
    # The places of a word add up to what it gains, so each adds its share.
    return ops.added_at(log_probs, words, gained * ops.where(some, weights / totals, 0))
