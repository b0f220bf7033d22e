"""Position encodings of a transformer: sinusoids, and rotations (RoPE)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqgen.engines.ops import Leaf, Ops, ops_of

if TYPE_CHECKING:
    from seqgen.models.transformer.settings import TransformerConfig


def position_waves(ops: Ops, config: TransformerConfig, length: int) -> Leaf:
    """Compute the sinusoids or RoPE rotations of `length` positions, (length, ...) of float32.

    With `sliding_rope_theta`, the rotations of layers with a sliding window follow the others along
    the second axis.
    """
    if config.positions == "rope":
        scaling, width = read_rope_scaling(config), config.head_width
        waves = rotations(ops, length, width, config.rope_theta, scaling)
        if config.sliding_rope_theta is None:
            return waves
        return ops.along(1, waves, rotations(ops, length, width, config.sliding_rope_theta))
    return sinusoids(ops, length, config.position_width)


def read_rope_scaling(config: TransformerConfig) -> RopeScaling | None:
    """Read RoPE's scaling for long texts from a configuration; None without one."""
    if config.rope_scaling is None:
        return None
    factors = config.rope_factor, config.rope_low_factor, config.rope_high_factor
    window, theta, gain = config.rope_original_window, config.rope_theta, config.rope_gain
    return RopeScaling(config.rope_scaling, *factors, original=window, theta=theta, gain=gain)


def sinusoids(ops: Ops, length: int, size: int) -> Leaf:
    """Compute the position encodings (length, size) of Vaswani et al. (2017), section 3.5.

    Dimension 2 i of position p is sin(p / 10000^(2 i / size)), and 2 i + 1 the cosine.
    """
    angle = ops.floats(length)[:, None] * rope_rates(ops, 10000.0, size)
    return ops.stack(-1, ops.sin(angle), ops.cos(angle)).reshape(length, -1)[:, :size]


@dataclass(frozen=True)
class RopeScaling:
    """Scaling of RoPE for texts longer than those of training: linear, llama3 or yarn.

    Attributes:
        kind: "linear" divides every rate by `factor` (Chen et al. 2023); "llama3" only those of
            waves longer than `original` / `low`, leaves waves shorter than `original` / `high`
            as they are, and goes from one to the other in between (as Llama 3.1, and Peng et al.
            2023, section 3.2). So does "yarn", but evenly over the pairs of a head, as their code.
        factor: how much longer the waves become.
        low: see `kind`.
        high: see `kind`.
        original: the window that the model was first trained on.
        theta: the base of the wavelengths.
        gain: what "yarn" multiplies cosines and sines by.
    """

    kind: str
    factor: float
    low: float
    high: float
    original: int
    theta: float = 10000.0
    gain: float = 1.0

    def rates(self, rate: Leaf) -> Leaf:
        """Scale the rotation rates (D / 2), in radians per position."""
        slow = rate / self.factor
        if self.kind == "linear":
            return slow
        kept = self.kept(rate)
        return kept * rate + (1 - kept) * slow

    def kept(self, rate: Leaf) -> Leaf:
        """Compute the unscaled share of each rate (D / 2), from 0 to 1."""
        if self.kind == "yarn":
            first, last = (self._pair(waves, len(rate)) for waves in (self.high, self.low))
            first, last = max(math.floor(first), 0), min(math.ceil(last), 2 * len(rate) - 1)
            slope = (ops_of(rate).floats(len(rate)) - first) / max(last - first, 0.001)
            return 1 - slope.clip(0, 1)
        waves = self.original * rate / (2 * math.pi)  # how many fit the window, (D / 2)
        return ((waves - self.low) / (self.high - self.low)).clip(0, 1)

    def _pair(self, waves: float, pairs: int) -> float:
        """Find the pair of a head that makes so many waves in the original window."""
        return pairs * math.log(self.original / (waves * 2 * math.pi)) / math.log(self.theta)


def rope_rates(ops: Ops, theta: float, size: int) -> Leaf:
    """Compute RoPE's rotation rates (D / 2), in radians per position."""
    return theta ** (-ops.floats(size, 2) / size)


def rotations(
    ops: Ops, length: int, size: int, theta: float, scaling: RopeScaling | None = None
) -> Leaf:
    """Compute cosines and sines (length, 2, size / 2) for `rotate` (Su et al. 2021)."""
    rate = rope_rates(ops, theta, size)
    angle = ops.floats(length)[:, None] * (rate if scaling is None else scaling.rates(rate))
    turned = ops.stack(1, ops.cos(angle), ops.sin(angle))
    return turned * scaling.gain if scaling is not None and scaling.kind == "yarn" else turned


def rotate(x: Leaf, rotation: Leaf) -> Leaf:
    """Rotate each pair (x_i, x_{i + D/2}) by its position's angle (RoPE, in Llama's order).

    Args:
        x: (B, heads, T, D).
        rotation: (T, 2, D / 2), or (B, T, 2, D / 2) where rows stand at different positions.
    """
    ops = ops_of(x)
    cos, sin = rotation[..., None, :, 0, :], rotation[..., None, :, 1, :]  # ([B,] 1, T, D / 2)
    first, second = ops.split(x, 1, 1)
    return ops.like(ops.join(first * cos - second * sin, second * cos + first * sin), x)
