"""Interpolation with weights that depend on how long a context an n-gram model knows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqgen.models.base import LanguageModel
from seqgen.models.engines.precision import in_float64
from seqgen.models.mixture.model import fit_weights
from seqgen.models.scores import Scores, Want
from seqgen.models.state import State

# Contexts of an order that has fewer held-out tokens get the weights of all contexts.
LEAST_TOKENS = 50


class MatchedOrders(LanguageModel):
    """Beside an n-gram model: its `score` gives, for each token, the order matched before it."""

    def __init__(self, inner: LanguageModel) -> None:
        super().__init__()
        self.inner, self.config = inner, inner.config
        self.rows_at_least = inner.rows_at_least

    def start(self, batch: int, stride: int | None = None) -> State:
        return self.inner.start(batch, stride)

    def forward(
        self, tokens: Tensor, state: State | None = None, last: int | None = None
    ) -> tuple[Tensor, State | None]:
        return self.inner(tokens, state, last)

    def score(
        self, tokens: Tensor, targets: Tensor, state: State, want: Want = "log_probs"
    ) -> tuple[Scores, State]:
        matched = in_float64(self.inner.matched(tokens, state))
        return Scores(matched), self.inner.predictions(tokens, state)[1]


def fit_by_order(
    log_probs: Tensor,
    matched: Tensor,
    orders: int,
    overall: Sequence[float],
    least: int = LEAST_TOKENS,
) -> list[list[float]]:
    """Find the weights for each order matched under which held-out text is most probable, by EM.

    The text's likelihood is a product over the orders, so that each one's weights are fitted on
    the tokens after its contexts alone.

    Args:
        log_probs: (N, K), of each token under each component, in nats.
        matched: (N,) of int64, the order matched before each token, 0 to `orders` - 1.
        orders: how many there are.
        overall: K weights for orders with too few tokens.
        least: so many tokens are enough.

    Returns:
        K weights for each order.
    """
    table = []
    for order in range(orders):
        of_order = log_probs[matched == order]
        enough = int((of_order > -torch.inf).any(1).sum()) >= least
        table.append(fit_weights(of_order)[0] if enough else list(overall))
    return table
