"""How positions enter a transformer: sinusoids, and rotations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


def sinusoids(length: int, size: int) -> Tensor:
    """Return the position encodings (length, size) of Vaswani et al. (2017), section 3.5.

    Dimension 2 i of position p is sin(p / 10000^(2 i / size)), and 2 i + 1 the cosine.
    """
    rate = 10000.0 ** (-torch.arange(0, size, 2) / size)
    angle = torch.arange(length)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :size]


def with_positions(x: Tensor, vectors: Tensor, concatenated: bool) -> Tensor:
    """Return the sum of tokens' and positions' vectors, or both side by side.

    Args:
        x: of tokens, (B, T, E).
        vectors: of positions, ([B,] T, P); P = E for sums.
        concatenated: whether they are put side by side, (B, T, E + P).
    """
    vectors = vectors.to(x.dtype)
    if concatenated:
        return torch.cat([x, vectors.expand(*x.shape[:-1], -1)], -1)
    return x + vectors


@dataclass(frozen=True)
class RopeScaling:
    """How a model that was trained on short texts turns longer ones.

    Attributes:
        kind: "linear" divides every rate by `factor` (Chen et al. 2023); "llama3" only those of
            waves longer than `original` / `low`, leaves waves shorter than `original` / `high`
            as they are, and goes from one to the other in between (as Llama 3.1).
        factor: how much longer the waves become.
        low: see `kind`.
        high: see `kind`.
        original: the window that the model was first trained on.
    """

    kind: str
    factor: float
    low: float
    high: float
    original: int

    def rates(self, rate: Tensor) -> Tensor:
        """Return the rates (D / 2), in radians a position, after scaling."""
        slow = rate / self.factor
        if self.kind == "linear":
            return slow
        kept = self.kept(rate)
        return kept * rate + (1 - kept) * slow

    def kept(self, rate: Tensor) -> Tensor:
        """Return the share of each rate (D / 2) that "llama3" leaves as it is, from 0 to 1."""
        waves = self.original * rate / (2 * math.pi)  # how many fit the window, (D / 2)
        return ((waves - self.low) / (self.high - self.low)).clamp(0, 1)


def rates(theta: float, size: int) -> Tensor:
    """Return the rates (D / 2) by which the pairs of a head turn, in radians a position."""
    return theta ** (-torch.arange(0, size, 2) / size)


def rotations(length: int, size: int, theta: float, scaling: RopeScaling | None = None) -> Tensor:
    """Return cosines and sines (length, 2, size / 2) for `rotate` (Su et al. 2021)."""
    rate = rates(theta, size)
    if scaling is not None:
        rate = scaling.rates(rate)
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
