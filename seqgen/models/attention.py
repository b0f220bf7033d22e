"""Causal self-attention over a whole window."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

# A longer window's (T, T) matrices would take more memory than the products are worth.
LONGEST_DENSE = 1024


def causal_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """Return softmax(Q K^T / sqrt(D)) V, each position seeing itself and those before it.

    Torch's kernel never holds the weights (T, T) but makes them again for the gradient, which
    under bf16 is very slow on a CPU (eight times the two batched products), so there they are
    kept.

    Args:
        q: queries (B, heads, T, D).
        k: keys, as q.
        v: values, as q.
        dropout: of the weights.
    """
    length, size = q.shape[-2:]
    in_bf16 = torch.is_autocast_enabled("cpu") and q.device.type == "cpu"
    if not in_bf16 or dropout or length > LONGEST_DENSE or not torch.is_grad_enabled():
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    mask = q.new_full((length, length), -math.inf).triu_(1)
    flat = [x.flatten(0, 1) for x in (q, k, v)]  # (B heads, T, D) each
    scores = torch.baddbmm(mask, flat[0], flat[1].mT, alpha=1 / math.sqrt(size))
    return (scores.softmax(-1) @ flat[2]).view(q.shape)
