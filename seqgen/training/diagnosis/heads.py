"""How widely each head of a transformer attends, and what the scale 1 / sqrt(D) does to it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from seqgen.models.transformer.attention import for_each_query
from seqgen.models.transformer.blocks import query_gain
from seqgen.models.transformer.model import Transformer


@dataclass(frozen=True, kw_only=True)
class HeadFigures:
    """The entropy of a head's attention, in nats, as a mean over windows and positions.

    Attributes:
        layer: from 0.
        head: from 0.
        entropy: of the model's attention, softmax(Q K^T / sqrt(D)) unless it leaves out the scale.
        entropy_unscaled: of softmax(Q K^T), for the same queries and keys.
        entropy_uniform: of a head that reads all positions it sees alike, which is the most.
    """

    layer: int
    head: int
    entropy: float
    entropy_unscaled: float
    entropy_uniform: float


def weights(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Return softmax(scale Q K^T) (B, heads, T, T), each position seeing none after itself.

    Keys may have fewer heads than queries.
    """
    length = q.shape[-2]
    after = torch.ones(length, length, dtype=torch.bool, device=q.device).triu_(1)
    return (scale * (q @ for_each_query(q, k).mT)).masked_fill(after, -math.inf).softmax(-1)


def entropies(probabilities: Tensor) -> Tensor:
    """Return - sum_l p_l log p_l over the last axis, 0 log 0 being 0."""
    return -torch.xlogy(probabilities, probabilities).sum(-1)


@torch.no_grad()
def attention_figures(model: Transformer, tokens: Tensor) -> list[HeadFigures]:
    """Return the figures of every head on windows (B, T) of text."""
    figures: list[HeadFigures] = []
    length, scales = tokens.shape[1], (model.config.head_width**-0.5, _plain_scale(model))
    uniform = sum(math.log(t) for t in range(1, length + 1)) / length

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        own, unscaled = (weights(q, k, scale) for scale in scales)
        both = (entropies(p).mean((0, 2)).tolist() for p in (own, unscaled))
        for head, (entropy, without) in enumerate(zip(*both, strict=True)):
            figures.append(
                HeadFigures(
                    layer=layer,
                    head=head,
                    entropy=entropy,
                    entropy_unscaled=without,
                    entropy_uniform=uniform,
                )
            )
        return own @ for_each_query(q, v)

    model.features_by(tokens, attend)
    return figures


@torch.no_grad()
def loss_unscaled(model: Transformer, tokens: Tensor, targets: Tensor) -> float:
    """Return the loss, in nats per token, if attention were softmax(Q K^T) V."""
    scale = _plain_scale(model)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return weights(q, k, scale) @ for_each_query(q, v)

    features = model.features_by(tokens, attend)
    return float(F.cross_entropy(model.head(features).flatten(0, 1), targets.flatten()))


def _plain_scale(model: Transformer) -> float:
    """Return what makes plain dot products of the queries and keys that the blocks hand on."""
    return 1 / query_gain(model.config)
