"""Attention of a recurrent decoder on its source: three ways to score a place, one to read."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.engines.ops import Ops
from seqgen.models.engines.tensor_ops import TensorOps
from seqgen.models.seq2seq.memory import Memory

# Intermediate numbers of scores that are held at once; more are computed in pieces.
MOST_NUMBERS = 1 << 26


class Score(nn.Module):
    """How well a query q fits each place h_j of the source.

    Args:
        query_size: width of q.
        size: width H of h_j.
        scaled: divide by the square root of H (Vaswani et al. 2017).

    Attributes:
        width: how many numbers are computed for a query at a place.
        ops: what the equations of `forward` are made of. `RowScore` calls them over arrays.
    """

    ops: ClassVar[Ops] = TensorOps

    def __init__(self, query_size: int, size: int, scaled: bool) -> None:
        super().__init__()
        self.query_size, self.size, self.width = query_size, size, 1
        self.scale = 1 / math.sqrt(size) if scaled else 1.0

    @abstractmethod
    def keys(self, encoded: Tensor) -> Tensor:
        """Return what is made of h (S, L, H) once a source, (S, L, A)."""

    @abstractmethod
    def forward(self, query: Tensor, keys: Tensor, covered: Tensor | None) -> Tensor:
        """Return scores (S, N, L).

        Args:
            query: (S, N, Q).
            keys: (S, L, A).
            covered: (S, N, L), how much of each place has been read, for scores that ask.
        """


class Dot(Score):
    """q . h_j (Luong et al. 2015, equation 8)."""

    def keys(self, encoded: Tensor) -> Tensor:
        return encoded

    def forward(self, query: Tensor, keys: Tensor, covered: Tensor | None) -> Tensor:
        return (query * self.scale) @ keys.swapaxes(1, 2)


class General(Dot):
    """q . W h_j (Luong et al. 2015, equation 8)."""

    def __init__(self, query_size: int, size: int, scaled: bool) -> None:
        super().__init__(query_size, size, scaled)
        self.map = Linear(size, query_size, bias=False)

    def keys(self, encoded: Tensor) -> Tensor:
        return self.map(encoded)


class Additive(Score):
    """v . tanh(W q + U h_j + b + c C_j) (Bahdanau et al. 2015, appendix A.1.2).

    C_j is the coverage of Tu et al. (2016), where there is one.
    """

    def __init__(self, query_size: int, size: int, scaled: bool, coverage: bool = False) -> None:
        super().__init__(query_size, size, scaled)
        self.width = size
        self.of_query = Linear(query_size, size, bias=False)
        self.of_key = Linear(size, size)
        self.v = nn.Parameter(torch.empty(size).uniform_(-1, 1) / math.sqrt(size))
        self.of_covered = nn.Parameter(torch.zeros(size)) if coverage else None

    def keys(self, encoded: Tensor) -> Tensor:
        return self.of_key(encoded)

    def forward(self, query: Tensor, keys: Tensor, covered: Tensor | None) -> Tensor:
        total = self.of_query(query)[:, :, None] + keys[:, None]  # (S, N, L, H)
        if covered is not None:
            total = total + covered[..., None] * self.of_covered
        return self.ops.tanh(total) @ self.v * self.scale


class Fertility(nn.Module):
    """How much reading a place takes up: N sigma(u . h_j + b), N = 2 (Tu et al. 2016)."""

    MOST = 2.0

    def __init__(self, size: int) -> None:
        super().__init__()
        self.map = Linear(size, 1)

    def forward(self, encoded: Tensor) -> Tensor:
        """Return the inverse of each place's fertility, (S, L, 1), from h (S, L, H)."""
        return 1 / (self.MOST * self.map(encoded).sigmoid())


def scores_of(score: Score, queries: Tensor, keys: Tensor, covered: Tensor | None) -> Tensor:
    """Return scores (S, N, L) in bounded memory; see `Score.forward` for the arguments.

    What additive attention computes for long texts is H times as large as its scores. Above
    `MOST_NUMBERS`, some queries are done at a time, and a training call does them again for the
    gradient instead of keeping their intermediate numbers.
    """
    each = keys.shape[0] * keys.shape[1] * score.width
    if queries.shape[1] * each <= MOST_NUMBERS:
        return score(queries, keys, covered)
    size = max(1, MOST_NUMBERS // each)
    pieces = queries.split(size, 1)
    past = [None] * len(pieces) if covered is None else covered.split(size, 1)
    if torch.is_grad_enabled():
        made = [
            checkpoint(score, piece, keys, piece_past, use_reentrant=False)
            for piece, piece_past in zip(pieces, past, strict=True)
        ]
    else:
        made = [
            score(piece, keys, piece_past) for piece, piece_past in zip(pieces, past, strict=True)
        ]
    return torch.cat(made, 1)


def read(
    score: Score, query: Tensor, memory: Memory, covered: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Read the memory: a_t = sum_j alpha_tj h_j, alpha_t the softmax over the source's places.

    Args:
        score: what compares.
        query: (B, T, Q).
        memory: its first keys and values are the score's keys and h.
        covered: (B, T, L), or None.

    Returns:
        a (B, T, H) and alpha (B, T, L).
    """
    queries = memory.group(query)  # (S, G, T, Q)
    if covered is not None:
        covered = memory.group(covered).flatten(1, 2)
    scores = scores_of(score, queries.flatten(1, 2), memory.keys[0], covered)  # (S, G T, L)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if memory.there is not None:
        scores = scores.masked_fill(~memory.there[:, None], -math.inf)
    alpha = scores.softmax(-1)
    values = memory.values[0]
    context = alpha.to(values.dtype) @ values  # (S, G T, H)
    each = queries.shape[1:3]
    return memory.ungroup(context.unflatten(1, each)), memory.ungroup(alpha.unflatten(1, each))
