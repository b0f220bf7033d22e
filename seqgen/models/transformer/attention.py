"""Attention kernels in torch: causal, and bidirectional with a padding mask."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from seqgen.engines.dropout import draw_for_rows, draws_for_some_rows
from seqgen.models.transformer.equations import causal_mask, softmax_weights

# A longer window's (T, T) matrices would take more memory than the products are worth.
LONGEST_DENSE = 1024


def causal_attention(
    q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, span: int | None = None
) -> Tensor:
    """Compute causal attention softmax(Q K^T / sqrt(D)) V.

    Torch's kernel never holds the weights (T, T) but makes them again for the gradient, which
    under bf16 is very slow on a CPU (eight times the two batched products), so there they are
    kept.

    Args:
        q: queries (B, heads, T, D).
        k: keys, as q, or with fewer heads, each for several of the queries'.
        v: values, as k.
        dropout: of the weights.
        span: how many positions each sees, itself included; None for all.
    """
    length, size = q.shape[-2:]
    k, v = repeat_heads(q, k), repeat_heads(q, v)
    spans = span is not None and span < length
    if spans or (dropout and draws_for_some_rows()):
        places = torch.arange(length, device=q.device)
        seen = causal_mask(places, places, span)
        if dropout and draws_for_some_rows():
            return _dropping(softmax_weights(q, k, seen), v, dropout)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=dropout)
    if dropout or not _keeps_weights(q, k):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    mask = q.new_full((length, length), -math.inf).triu_(1)
    flat = [x.flatten(0, 1) for x in (q, k, v)]  # (B heads, T, D) each
    scores = torch.baddbmm(mask, flat[0], flat[1].mT, alpha=1 / math.sqrt(size))
    return (scores.softmax(-1) @ flat[2]).view(q.shape)


def squashed_attention(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, softcap: float
) -> Tensor:
    """Compute attention with scores that are squashed softly into -softcap to softcap.

    Args:
        q: queries (B, heads, T, D).
        k: keys (B, heads, L, D), or fewer heads.
        v: values, as k.
        seen: which keys each query sees, of a shape that fits the weights'; None for all.
        softcap: the largest score.
    """
    k, v = repeat_heads(q, k), repeat_heads(q, v)
    return softmax_weights(q, k, seen, softcap).to(v.dtype) @ v


def full_attention(
    q: Tensor, k: Tensor, v: Tensor, there: Tensor | None, dropout: float = 0.0
) -> Tensor:
    """Compute attention softmax(Q K^T / sqrt(D)) V to all keys that are not masked.

    Args:
        q: queries (B, heads, T, D).
        k: keys (B, heads, L, D), or fewer heads.
        v: values, as k.
        there: which keys a row has, (B, L) of bool; None where each has all.
        dropout: of the weights.
    """
    k, v = repeat_heads(q, k), repeat_heads(q, v)
    there = None if there is None else there[:, None, None]
    if dropout and draws_for_some_rows():
        return _dropping(softmax_weights(q, k, there), v, dropout)
    if dropout or not _keeps_weights(q, k):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=there, dropout_p=dropout)
    return softmax_weights(q, k, there).to(v.dtype) @ v


def repeat_heads(q: Tensor, x: Tensor) -> Tensor:
    """Repeat keys or values x (B, heads, L, D) to the number of query heads.

    Where there are fewer, each is read by as many neighbouring heads of queries.
    """
    return x if q.shape[1] == x.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def _dropping(weights: Tensor, v: Tensor, p: float) -> Tensor:
    """Apply dropout to attention weights (B, heads, T, L), then average values."""

    def draw(shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        return weights.new_empty(shape).bernoulli_(1 - p, generator=generator)

    return (weights * draw_for_rows(draw, weights.shape).div_(1 - p)).to(v.dtype) @ v


def _keeps_weights(q: Tensor, k: Tensor) -> bool:
    """Check whether two batched products beat torch's kernel: training in bf16 on a CPU."""
    in_bf16 = torch.is_autocast_enabled("cpu") and q.device.type == "cpu"
    short = max(q.shape[-2], k.shape[-2]) <= LONGEST_DENSE
    return in_bf16 and short and torch.is_grad_enabled()
