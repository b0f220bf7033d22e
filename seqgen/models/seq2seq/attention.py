"""Attention of a recurrent decoder to its source: three scores and the weighted sum."""

from __future__ import annotations

import math

from seqgen.engines.ops import Leaf
from seqgen.engines.parts import Linear, Numbers, Part, Pieces
from seqgen.models.seq2seq.memory import Memory

# Intermediate numbers of scores that are held at once; more are computed in pieces.
MOST_NUMBERS = 1 << 26
# How much reading a place takes up at most (Tu et al. 2016).
MOST_FERTILITY = 2.0


class DotScore(Part):
    """Dot-product attention score q . h_j (Luong et al. 2015, equation 8).

    Attributes:
        scale: what scores are multiplied by: 1, or 1 / sqrt(H) (Vaswani et al. 2017).
        width: how many numbers are computed for a query at a place.
    """

    scale: float
    width: int = 1

    def pieces(self, query_size: int, size: int, scaled: bool, covers: bool = False) -> Pieces:
        """List the parameters; the dot product needs none.

        Args:
            query_size: width Q of q.
            size: width H of h_j.
            scaled: divide by the square root of H.
            covers: coverage is added, for scores that ask.
        """
        self.scale = 1 / math.sqrt(size) if scaled else 1.0
        return {}

    def keys(self, encoded: Leaf) -> Leaf:
        """Project encoder states h (S, L, H) to attention keys (S, L, A), once per source."""
        return encoded

    def run(self, query: Leaf, keys: Leaf, covered: Leaf | None) -> Leaf:
        """Score each source position for each query, (S, N, L).

        Args:
            query: (S, N, Q).
            keys: (S, L, A).
            covered: (S, N, L), how much of each place has been read, for scores that ask.
        """
        return (query * self.scale) @ keys.swapaxes(1, 2)

    def in_pieces(self, query: Leaf, keys: Leaf, covered: Leaf | None) -> Leaf:
        """Compute `run` in chunks with bounded memory.

        What additive attention computes for long texts is H times as large as its scores. Above
        `MOST_NUMBERS`, some queries are done at a time.
        """
        each, count = keys.shape[0] * keys.shape[1] * self.width, query.shape[1]
        if count * each <= MOST_NUMBERS:
            return self(query, keys, covered)
        size = max(1, MOST_NUMBERS // each)
        made = []
        for begin in range(0, count, size):
            piece, past = (
                None if x is None else x[:, begin : begin + size] for x in (query, covered)
            )
            made.append(self.ops.in_little_memory(self, piece, keys, past))
        return self.ops.along(1, *made)


class GeneralScore(DotScore):
    """General attention score q . W h_j (Luong et al. 2015, equation 8)."""

    def pieces(self, query_size: int, size: int, scaled: bool, covers: bool = False) -> Pieces:
        map_ = Linear(size, query_size, bias=False)
        return {**super().pieces(query_size, size, scaled), "map": map_}

    def keys(self, encoded: Leaf) -> Leaf:
        return self.map(encoded)


class AdditiveScore(DotScore):
    """Additive attention score v . tanh(W q + U h_j + b + c C_j) (Bahdanau et al. 2015).

    C_j is the coverage of Tu et al. (2016), where there is one.
    """

    def pieces(self, query_size: int, size: int, scaled: bool, covers: bool = False) -> Pieces:
        def begin(v: Leaf) -> None:
            v.uniform_(-1, 1).div_(math.sqrt(size))

        self.width = size
        return {
            **super().pieces(query_size, size, scaled),
            "of_query": Linear(query_size, size, bias=False),
            "of_key": Linear(size, size),
            "v": Numbers((size,), begin),
            "of_covered": Numbers((size,)) if covers else None,
        }

    def keys(self, encoded: Leaf) -> Leaf:
        return self.of_key(encoded)

    def run(self, query: Leaf, keys: Leaf, covered: Leaf | None) -> Leaf:
        total = self.of_query(query)[:, :, None] + keys[:, None]  # (S, N, L, H)
        if covered is not None:
            total = total + covered[..., None] * self.of_covered
        return self.ops.tanh(total) @ self.v * self.scale


class Fertility(Part):
    """Coverage weight 1 / (N sigma(u . h_j + b)), N = 2, of each position (S, L, 1).

    A place's fertility is how much reading it takes up (Tu et al. 2016).
    """

    def pieces(self, size: int) -> Pieces:
        return {"map": Linear(size, 1)}

    def run(self, encoded: Leaf) -> Leaf:
        return 1 / (MOST_FERTILITY * self.ops.sigmoid(self.map(encoded)))


def attend(score: DotScore, query: Leaf, memory: Memory, covered: Leaf | None) -> tuple[Leaf, Leaf]:
    """Attend to a source: a_t = sum_j alpha_tj h_j, alpha_t the softmax of its scores.

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
    """Reshape x (S, G, T, N) to (S, G T, N)."""
    return x.reshape(len(x), -1, x.shape[-1])
