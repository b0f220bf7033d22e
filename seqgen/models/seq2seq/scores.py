"""Attention of a recurrent decoder on its source: three ways to score a place, one to read.

A score is over arrays as it stands here; `attention.py` makes torch modules of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from seqgen.models.engines.ops import ArrayOps, Leaf, Ops
from seqgen.models.engines.weights import Shapes, Weights, linear_shapes
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.recurrent_config import Layout

# Intermediate numbers of scores that are held at once; more are computed in pieces.
MOST_NUMBERS = 1 << 26
# How much reading a place takes up at most (Tu et al. 2016).
MOST_FERTILITY = 2.0


class DotScore:
    """q . h_j (Luong et al. 2015, equation 8).

    Attributes:
        scale: what scores are multiplied by: 1, or 1 / sqrt(H) (Vaswani et al. 2017).
        width: how many numbers are computed for a query at a place.
    """

    ops: ClassVar[Ops] = ArrayOps
    scale: float
    width: int = 1

    def keys(self, encoded: Leaf) -> Leaf:
        """Return what is made of h (S, L, H) once a source, (S, L, A)."""
        return encoded

    def fit(self, query: Leaf, keys: Leaf, covered: Leaf | None) -> Leaf:
        """Return scores (S, N, L): how well queries fit each place of the source.

        Args:
            query: (S, N, Q).
            keys: (S, L, A).
            covered: (S, N, L), how much of each place has been read, for scores that ask.
        """
        return (query * self.scale) @ keys.swapaxes(1, 2)

    def in_pieces(self, query: Leaf, keys: Leaf, covered: Leaf | None) -> Leaf:
        """Do what `fit` does in bounded memory.

        What additive attention computes for long texts is H times as large as its scores. Above
        `MOST_NUMBERS`, some queries are done at a time.
        """
        each, count = keys.shape[0] * keys.shape[1] * self.width, query.shape[1]
        if count * each <= MOST_NUMBERS:
            return self.applied(query, keys, covered, True)
        size = max(1, MOST_NUMBERS // each)
        made = []
        for begin in range(0, count, size):
            piece, past = (
                None if x is None else x[:, begin : begin + size] for x in (query, covered)
            )
            made.append(self.applied(piece, keys, past, False))
        return self.ops.along(1, *made)

    def applied(self, query: Leaf, keys: Leaf, covered: Leaf | None, is_whole: bool) -> Leaf:
        """Return what `fit` does, of all queries or of some."""
        return self.fit(query, keys, covered)


class GeneralScore(DotScore):
    """q . W h_j (Luong et al. 2015, equation 8)."""

    map: Callable[[Leaf], Leaf]

    def keys(self, encoded: Leaf) -> Leaf:
        return self.map(encoded)


class AdditiveScore(DotScore):
    """v . tanh(W q + U h_j + b + c C_j) (Bahdanau et al. 2015, appendix A.1.2).

    C_j is the coverage of Tu et al. (2016), where there is one.
    """

    of_query: Callable[[Leaf], Leaf]
    of_key: Callable[[Leaf], Leaf]
    v: Leaf
    of_covered: Leaf | None

    def keys(self, encoded: Leaf) -> Leaf:
        return self.of_key(encoded)

    def fit(self, query: Leaf, keys: Leaf, covered: Leaf | None) -> Leaf:
        total = self.of_query(query)[:, :, None] + keys[:, None]  # (S, N, L, H)
        if covered is not None:
            total = total + covered[..., None] * self.of_covered
        return self.ops.tanh(total) @ self.v * self.scale


SCORES = {"dot": DotScore, "general": GeneralScore, "additive": AdditiveScore}


def score_over_arrays(layout: Layout, weights: Weights) -> DotScore | None:
    """Return the score of a model, whose weights are its `alignment`; None without attention."""
    config = layout.config
    if config.attention == "none":
        return None
    score = SCORES[config.attention]()
    score.scale = scale_of(config.scaled, layout.source_size)
    if config.attention == "general":
        score.map = weights.affine("map")
    elif config.attention == "additive":
        score.of_query, score.of_key = weights.affine("of_query"), weights.affine("of_key")
        score.v, score.of_covered = weights.v, weights.get("of_covered")
        score.width = len(score.v)
    return score


def score_shapes(layout: Layout) -> Shapes:
    """Return the shapes of the weights of attention and of coverage."""
    size, kind, shapes = layout.source_size, layout.config.attention, {}
    if kind == "general":
        shapes |= linear_shapes("alignment.map", size, layout.query_size, bias=False)
    elif kind == "additive":
        shapes |= linear_shapes("alignment.of_query", layout.query_size, size, bias=False)
        shapes |= {**linear_shapes("alignment.of_key", size, size), "alignment.v": (size,)}
    if layout.config.coverage:
        shapes |= {"alignment.of_covered": (size,), **linear_shapes("fertility.map", size, 1)}
    return shapes


def scale_of(scaled: bool, size: int) -> float:
    """Return what scores are multiplied by, for h of width H."""
    return 1 / math.sqrt(size) if scaled else 1.0


def inverse_fertility(ops: Ops, map_: Callable[[Leaf], Leaf], encoded: Leaf) -> Leaf:
    """Return 1 / (N sigma(u . h_j + b)), N = 2, of each place, (S, L, 1), from h (S, L, H).

    A place's fertility is how much reading it takes up (Tu et al. 2016).
    """
    return 1 / (MOST_FERTILITY * ops.sigmoid(map_(encoded)))


def read(score: DotScore, query: Leaf, memory: Memory, covered: Leaf | None) -> tuple[Leaf, Leaf]:
    """Read the memory: a_t = sum_j alpha_tj h_j, alpha_t the softmax over the source's places.

    Args:
        score: what compares.
        query: (B, T, Q).
        memory: its first keys and values are the score's keys and h.
        covered: (B, T, L), or None.

    Returns:
        a (B, T, H) and alpha (B, T, L).
    """
    ops, queries = score.ops, memory.group(query)  # (S, G, T, Q)
    if covered is not None:
        covered = _flat(memory.group(covered))
    scores = ops.wide(score.in_pieces(_flat(queries), memory.keys[0], covered))  # (S, G T, L)
    if memory.there is not None:
        scores = ops.where(memory.there[:, None], scores, -math.inf)
    alpha, values = ops.softmax(scores), memory.values[0]
    context = ops.like(alpha, values) @ values  # (S, G T, H)
    return tuple(memory.ungroup(x.reshape(*queries.shape[:3], -1)) for x in (context, alpha))


def _flat(x: Leaf) -> Leaf:
    """Return x (S, G, T, N) as (S, G T, N)."""
    return x.reshape(len(x), -1, x.shape[-1])
