"""Attention statistics of every transformer head on windows of text.

A decoder sees what is before a position, a masked model all of its row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from seqgen.engines.ops import Leaf, ops_of, without_gradients
from seqgen.models.transformer.equations import Attend, query_gain, softmax_weights
from seqgen.models.transformer.settings import TransformerConfig

LEAST = 1e-37  # whose logarithm is finite in float32


class AttendingModel(Protocol):
    """Protocol of models whose attention can be observed: `AnchoredContext`, `MaskedModel`."""

    config: TransformerConfig

    def features_by(self, tokens: Leaf, attend: Attend) -> Leaf: ...

    def seen(self, layer: int, places: Leaf) -> Leaf | None: ...


@dataclass(frozen=True, kw_only=True)
class HeadFigures:
    """Attention entropy and softmax gradient of a head, averaged over windows and positions.

    Attributes:
        layer: from 0.
        head: from 0.
        entropy: in nats, of the model's attention, softmax(Q K^T / sqrt(D)) unless it leaves out
            the scale.
        entropy_unscaled: of softmax(Q K^T), for the same queries and keys.
        entropy_uniform: of a head that reads all positions it sees alike, which is the most.
        softmax_gradient: sum_l dp_l / ds_l = 1 - sum_l p_l^2, the trace of the Jacobian of the
            model's softmax p by its scores s: 0 where it reads one position alone.
        softmax_gradient_unscaled: of softmax(Q K^T).
    """

    layer: int
    head: int
    entropy: float
    entropy_unscaled: float
    entropy_uniform: float
    softmax_gradient: float
    softmax_gradient_unscaled: float


@without_gradients
def attention_figures(model: AttendingModel, tokens: Leaf) -> list[HeadFigures]:
    """Compute the attention statistics of every head on windows (B, T) of text."""
    gain, figures = unscaled_gain(model), []

    def see(layer: int, q: Leaf, k: Leaf, own: Leaf) -> None:
        both = own, weights_of(model, layer, gain * q, k)
        uniform = uniform_entropy(model, layer, q)
        entropies = (-(p * ops_of(p).log(ops_of(p).at_least(p, LEAST))).sum(-1) for p in both)
        traces = (1 - (p * p).sum(-1) for p in both)
        means = (x.mean((0, 2)).tolist() for x in (*entropies, *traces))
        for head, (entropy, without, trace, trace_without) in enumerate(zip(*means, strict=True)):
            figures.append(
                HeadFigures(
                    layer=layer,
                    head=head,
                    entropy=entropy,
                    entropy_unscaled=without,
                    entropy_uniform=uniform,
                    softmax_gradient=trace,
                    softmax_gradient_unscaled=trace_without,
                )
            )

    observe_attention(model, tokens, see)
    return figures


@without_gradients
def attention_weights(model: AttendingModel, tokens: Leaf) -> list[np.ndarray]:
    """Compute each layer's attention weights (heads, T, T) of a window (1, T), in float64."""
    layers: list[np.ndarray] = []

    def see(layer: int, q: Leaf, k: Leaf, own: Leaf) -> None:
        layers.append(ops_of(own).array(ops_of(own).wide(own[0])).astype(np.float64))

    observe_attention(model, tokens, see)
    return layers


def observe_attention(
    model: AttendingModel,
    tokens: Leaf,
    see: Callable[[int, Leaf, Leaf, Leaf], None] = lambda *_: None,
    gain: float = 1.0,
) -> Leaf:
    """Compute the features (B, T, H) of windows, with a callback that gets attention weights.

    Args:
        model: the transformer.
        tokens: the windows.
        see: is handed, layer by layer, its number, queries, keys and weights (B, heads, T, T).
        gain: what queries are multiplied by.
    """

    def attend(layer: int, q: Leaf, k: Leaf, v: Leaf) -> Leaf:
        weights = weights_of(model, layer, gain * q, k)
        see(layer, q, k, weights)
        return weights @ _for_each(q, v)

    return model.features_by(tokens, attend)


def weights_of(model: AttendingModel, layer: int, q: Leaf, k: Leaf) -> Leaf:
    """Compute the attention weights softmax(Q K^T / sqrt(D)) (B, heads, T, T) of a layer.

    Keys may have fewer heads than queries.
    """
    softcap = model.config.attention_softcap
    return softmax_weights(q, _for_each(q, k), _seen(model, layer, q), softcap)


def uniform_entropy(model: AttendingModel, layer: int, q: Leaf) -> float:
    """Compute the mean entropy of uniform attention over visible positions, in nats."""
    seen, length = _seen(model, layer, q), q.shape[-2]
    if seen is None:
        return math.log(length)
    return float(np.log(ops_of(seen).array(seen).sum(-1)).mean())


def _seen(model: AttendingModel, layer: int, q: Leaf) -> Leaf | None:
    return model.seen(layer, ops_of(q).count(q, q.shape[-2]))


def unscaled_gain(model: AttendingModel) -> float:
    """Compute the query factor that undoes the scale: attention becomes softmax(Q K^T)."""
    return math.sqrt(model.config.head_width) / query_gain(model.config)


def _for_each(q: Leaf, x: Leaf) -> Leaf:
    """Repeat keys or values x (B, heads, L, D) to the number of query heads."""
    return x[:, [head * x.shape[1] // q.shape[1] for head in range(q.shape[1])]]
