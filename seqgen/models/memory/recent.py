"""Attention to the last positions of a text, and the words that stand there.

What the continuous cache (`continuous_cache`) and the pointer of a recurrent model (`pointer`)
share: both add the weight of a position to the probability of its word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from seqgen.models.state import State

# Where a row has no position yet.
NOTHING = -1
# Queries that share one block of keys, at least: fewer make more and smaller products.
FEWEST_TOGETHER = 64


@dataclass
class Recent(State):
    """The last positions of each row, the newest last.

    Attributes:
        features: (B, n, H), what the head reads there.
        tokens: (B, n) of int64, what was read there; NOTHING before a row's first token.
    """

    features: Tensor
    tokens: Tensor

    @classmethod
    def empty(cls, batch: int, like: Tensor) -> Recent:
        """Return no positions of `batch` rows, for features of the type and width of `like`.

        Args:
            batch: rows B.
            like: (..., H), such as the matrix of the head that reads the features.
        """
        features = like.new_zeros(batch, 0, like.shape[-1])
        return cls(features, torch.zeros(batch, 0, dtype=torch.int64, device=like.device))

    def extended(self, features: Tensor, tokens: Tensor) -> Recent:
        """Return these positions and those of features (B, T, H) and tokens (B, T) after them."""
        joined = torch.cat([self.features, features], 1)
        return Recent(joined, torch.cat([self.tokens, tokens], 1))

    def last(self, count: int) -> Recent:
        """Return the newest `count` positions, or all where there are fewer."""
        first = max(0, self.tokens.shape[1] - count)
        # A copy, since a view would keep the whole text in memory.
        return self.map(lambda x: x[:, first:].clone())

    @classmethod
    def cat(cls, states: Sequence[Recent]) -> Recent:
        """Join rows of different lengths, aligned at the newest position."""
        longest = max(state.tokens.shape[1] for state in states)
        return super().cat([state._aligned(longest) for state in states])

    def _aligned(self, length: int) -> Recent:
        missing = length - self.tokens.shape[1]
        features = F.pad(self.features, (0, 0, missing, 0))
        return Recent(features, F.pad(self.tokens, (missing, 0), value=NOTHING))


@dataclass(frozen=True)
class CacheHits:
    """What queries find at the positions they look at, of which there is room for W.

    Attributes:
        scores: (B, Q, W), the products of each query with the keys; -inf where it sees none.
        words: (B, Q, W) of int64, the words that go with the keys; 0 where it sees none.
    """

    scores: Tensor
    words: Tensor


def recall(queries: Tensor, keys: Tensor, words: Tensor, reach: int) -> CacheHits:
    """Return what queries (B, Q, H) find: the last one sees the last N keys, and so on back.

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
    keys = F.pad(keys, (0, 0, before, after)).unfold(1, width, together)  # (B, K, H, W)
    words = F.pad(words, (before, after), value=NOTHING).unfold(1, width, together)  # (B, K, W)
    queries = F.pad(queries, (0, 0, 0, after)).unflatten(1, (blocks, together))  # (B, K, C, H)
    wide = torch.promote_types(queries.dtype, torch.float32)
    with torch.autocast(queries.device.type, enabled=False):
        scores = queries.to(wide) @ keys.to(wide)  # (B, K, C, W)
    place = torch.arange(width, device=scores.device)
    first = torch.arange(together, device=scores.device)[:, None]
    seen = (place >= first) & (place < first + reach) & (words >= 0).unsqueeze(2)
    scores = scores.masked_fill(~seen, -torch.inf)
    words = words.clamp(min=0).unsqueeze(2).expand(scores.shape)
    return CacheHits(*(x.flatten(1, 2)[:, :count] for x in (scores, words)))


def log_weight_of(targets: Tensor, log_weights: Tensor, words: Tensor) -> Tensor:
    """Return the log of the sum of the weights (..., W) that are of each target (...)."""
    there = words == targets.unsqueeze(-1)
    return log_weights.masked_fill(~there, -torch.inf).logsumexp(-1)


def with_weights(log_probs: Tensor, weights: Tensor, words: Tensor) -> Tensor:
    """Return the log of probabilities to which weights are added, each to its word's.

    Logarithms are taken at the W words alone, and not over the vocabulary.

    Args:
        log_probs: (..., V), finite.
        weights: (..., W), not negative; 0 adds nothing.
        words: (..., W) of int64; a word may be there more than once.
    """
    sums = torch.zeros_like(log_probs).scatter_add(-1, words, weights.to(log_probs.dtype))
    some = weights > 0
    totals = torch.where(some, sums.gather(-1, words), 1)  # of all places of the word
    old = log_probs.gather(-1, words)
    gained = torch.logaddexp(old, totals.log()) - old
    # The places of a word add up to what it gains, so each adds its share.
    fraction = torch.where(some, weights / totals, 0).to(log_probs.dtype)
    return log_probs.scatter_add(-1, words, gained * fraction)
