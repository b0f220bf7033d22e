"""How positions enter a transformer: sinusoids, and rotations."""

from __future__ import annotations

import torch
from torch import Tensor


def sinusoids(length: int, size: int) -> Tensor:
    """Return the position encodings (length, size) of Vaswani et al. (2017), section 3.5.

    Dimension 2 i of position p is sin(p / 10000^(2 i / size)), and 2 i + 1 the cosine.
    """
    rate = 10000.0 ** (-torch.arange(0, size, 2) / size)
    angle = torch.arange(length)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :size]


def rotations(length: int, size: int, theta: float) -> Tensor:
    """Return cosines and sines (length, 2, size / 2) for `rotate` (Su et al. 2021)."""
    rate = theta ** (-torch.arange(0, size, 2) / size)
    angle = torch.arange(length)[:, None] * rate
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i + D/2}) by its position's angle (RoPE, in Llama's order).

    Args:
        x: (B, heads, T, D).
        rotation: (T, 2, D / 2), or (B, T, 2, D / 2) where rows stand at different positions.
    """
    cos, sin = rotation.unsqueeze(-4).unbind(-2)  # ([B,] 1, T, D / 2) each
    first, second = x.chunk(2, dim=-1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat(turned, dim=-1).to(x.dtype)
