"""Weights of a mixture fitted on one half of a held-out text, and what they give on the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqgen.commands.scoring.fit_cache import rounded
from seqgen.commands.scoring.mix import token_log_probs
from seqgen.configs import Direction
from seqgen.data.corpus import Corpus
from seqgen.models.base import LanguageModel
from seqgen.models.mixture.by_order import MatchedOrders, fit_by_order
from seqgen.models.mixture.model import fit_weights

# Weights by order are many, so they are tried only if a quarter of the text has so many tokens.
LEAST_QUARTER = 500


@dataclass(frozen=True)
class HalvesFit:
    """What came of fitting on the first half of a text.

    Attributes:
        weights: of the network and the n-gram model.
        by_order: their weights for each order matched; empty where these are no better.
        tokens: of the second half.
        losses: of the second half, in nats per token: the network's, the n-gram model's and the
            mixture's.
        all_nats: the total of both halves under the mixture.
    """

    weights: tuple[float, ...]
    by_order: tuple[tuple[float, ...], ...]
    tokens: int
    losses: tuple[float, float, float]
    all_nats: float


def fit_on_half(
    network: LanguageModel,
    ngram: LanguageModel,
    corpus: Corpus,
    batch_size: int = 32,
    direction: Direction = "forward",
) -> HalvesFit:
    """Fit the weights of a network and an n-gram model; see `fit_columns`.

    Args:
        network: in evaluation mode.
        ngram: has the same vocabulary.
        corpus: held-out text, of two tokens or more.
        batch_size: documents side by side; changes no figure.
        direction: in which both read.
    """
    network_column, ngram_column, matched = (
        torch.from_numpy(token_log_probs(model, corpus, batch_size, direction))
        for model in (network, ngram, MatchedOrders(ngram))
    )
    log_probs = torch.stack([network_column, ngram_column], 1)
    return fit_columns(log_probs, matched.long(), ngram.orders)


def fit_columns(log_probs: Tensor, matched: Tensor, orders: int) -> HalvesFit:
    """Fit weights on the first half of a text and score the second.

    Weights by order are taken if, fitted on the first quarter, they are better on the second.

    Args:
        log_probs: (N, 2), of each token under the network and the n-gram model, in nats.
        matched: (N,) of int64, the order that the n-gram model matches before each token.
        orders: how many there are.
    """
    half, quarter = log_probs.shape[0] // 2, log_probs.shape[0] // 4

    def table_of(end: int, by_order: bool) -> tuple[list[float], list[list[float]]]:
        weights, _ = fit_weights(log_probs[:end])
        if not by_order:
            return weights, []
        return weights, fit_by_order(log_probs[:end], matched[:end], orders, weights)

    def mixed(weights: list[float], table: list[list[float]]) -> Tensor:
        rows = torch.tensor([weights], dtype=torch.float64)
        if table:
            rows = torch.tensor(table, dtype=torch.float64)[matched]
        return (log_probs + rows.log()).logsumexp(1)

    by_order = False
    if quarter >= LEAST_QUARTER:
        plain, tabled = (mixed(*table_of(quarter, each))[quarter:half] for each in (False, True))
        by_order = bool(tabled.mean() > plain.mean())
    weights, table = table_of(half, by_order)
    weights, table = rounded(weights, half), [rounded(row, half) for row in table]
    whole = mixed(weights, table)
    columns = torch.cat([log_probs, whole[:, None]], 1)[half:]
    return HalvesFit(
        weights=tuple(weights),
        by_order=tuple(map(tuple, table)),
        tokens=columns.shape[0],
        losses=tuple((-columns.mean(0)).tolist()),
        all_nats=-whole.sum().item(),
    )
