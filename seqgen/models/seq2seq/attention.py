"""Scores of attention as torch modules; see `scores.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.engines.ops import Ops
from seqgen.models.engines.tensor_ops import TensorOps
from seqgen.models.seq2seq.scores import (
    AdditiveScore,
    DotScore,
    GeneralScore,
    inverse_fertility,
    scale_of,
)


class Score(nn.Module):
    """How well a query q fits each place h_j of the source.

    Args:
        query_size: width of q.
        size: width H of h_j.
        scaled: divide by the square root of H (Vaswani et al. 2017).
    """

    ops: ClassVar[Ops] = TensorOps

    def __init__(self, query_size: int, size: int, scaled: bool) -> None:
        super().__init__()
        self.scale = scale_of(scaled, size)

    def forward(self, query: Tensor, keys: Tensor, covered: Tensor | None) -> Tensor:
        """See `DotScore.fit`."""
        return self.fit(query, keys, covered)

    def applied(
        self, query: Tensor, keys: Tensor, covered: Tensor | None, is_whole: bool
    ) -> Tensor:
        """See `DotScore.applied`; pieces are done again for the gradient, and nothing is kept."""
        if is_whole or not torch.is_grad_enabled():
            return self(query, keys, covered)
        return checkpoint(self, query, keys, covered, use_reentrant=False)


class Dot(Score, DotScore):
    """See `DotScore`."""


class General(Score, GeneralScore):
    """See `GeneralScore`."""

    def __init__(self, query_size: int, size: int, scaled: bool) -> None:
        super().__init__(query_size, size, scaled)
        self.map = Linear(size, query_size, bias=False)


class Additive(Score, AdditiveScore):
    """See `AdditiveScore`."""

    def __init__(self, query_size: int, size: int, scaled: bool, coverage: bool = False) -> None:
        super().__init__(query_size, size, scaled)
        self.width = size
        self.of_query = Linear(query_size, size, bias=False)
        self.of_key = Linear(size, size)
        self.v = nn.Parameter(torch.empty(size).uniform_(-1, 1) / math.sqrt(size))
        self.of_covered = nn.Parameter(torch.zeros(size)) if coverage else None


SCORES: Mapping[str, type[Score]] = {"dot": Dot, "general": General, "additive": Additive}


class Fertility(nn.Module):
    """See `inverse_fertility`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.map = Linear(size, 1)

    def forward(self, encoded: Tensor) -> Tensor:
        return inverse_fertility(TensorOps, self.map, encoded)
