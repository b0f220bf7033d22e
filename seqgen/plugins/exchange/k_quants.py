"""Quantization of float32 matrices to K-quants, the blocks of 256 weights of GGUF files.

The weights x of a group are near s q - m, with whole numbers q, a scale s and in Q4_K and Q5_K a
minimum m. For given q, s and m minimize the squared error by linear regression; for given s and m,
q are the nearest whole numbers. The search begins from several scales and keeps the best.

The scales of a block's groups, and its minima, are whole multiples of one number each, in float16.
So they are rounded, and then q once more. `seqgen.engines.blocks` reads the blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# The weights of a block, and those that are quantized at a time.
BLOCK, WEIGHTS_AT_ONCE = 256, 1 << 18
# Scales that the search begins from: the one that reaches the largest weight, times these.
STRETCHES = np.linspace(0.8, 1.1, 13, dtype=np.float32)


def quantize(x: np.ndarray, name: str) -> bytes:
    """Convert a matrix to blocks.

    Args:
        x: (..., I) float32, I a multiple of 256.
        name: a key of `QUANTIZERS`.
    """
    blocks, step = x.reshape(-1, BLOCK), WEIGHTS_AT_ONCE // BLOCK
    some = (blocks[begin : begin + step] for begin in range(0, len(blocks), step))
    return b"".join(np.concatenate(QUANTIZERS[name](x), 1).tobytes() for x in some)


def _with_minima(x: np.ndarray, fifth: bool) -> list[np.ndarray]:
    """Quantize blocks (N, 256) to Q4_K or Q5_K: 8 groups, each with a scale and a minimum."""
    groups, levels = x.reshape(-1, 8, 32), 31 if fifth else 15
    scales, minima = _fit_with_minima(groups, levels)
    (both_scales, scales), (both_minima, minima) = (_in_six_bits(y) for y in (scales, minima))
    s, m = both_scales * scales, both_minima * minima
    q = np.clip(np.rint((groups + m[..., None]) * _inverse(s)[..., None]), 0, levels)
    q = q.astype(np.uint8).reshape(-1, 4, 2, 32)
    halves = [y.astype("<f2").view(np.uint8) for y in (both_scales, both_minima)]
    low = (q[:, :, 0] & 15) | (q[:, :, 1] & 15) << 4
    parts = [*halves, _twelve_bytes(scales, minima), low.reshape(-1, 128)]
    if fifth:
        bits = (q >> 4).reshape(-1, 8, 32).swapaxes(1, 2)
        parts.insert(3, np.packbits(bits, -1, bitorder="little")[..., 0])
    return parts


def _six_bits(x: np.ndarray) -> list[np.ndarray]:
    """Quantize blocks (N, 256) to Q6_K: 16 groups, each with a scale of 8 bits and a sign."""
    groups = x.reshape(-1, 16, 16)
    scales = _fit(groups, -32, 31)
    extreme = np.take_along_axis(scales, np.abs(scales).argmax(1)[:, None], 1)
    both = (extreme / -128).astype("<f2")
    whole = np.clip(np.rint(scales * _inverse(both.astype(np.float32))), -128, 127)
    s = both.astype(np.float32) * whole
    q = np.clip(np.rint(groups * _inverse(s)[..., None]), -32, 31) + 32
    q = q.astype(np.uint8).reshape(-1, 2, 4, 32)
    low, high = q & 15, q >> 4
    lows = (low[:, :, :2] | low[:, :, 2:] << 4).reshape(-1, 128)
    highs = (high << np.array([[0], [2], [4], [6]], np.uint8)).sum(2, dtype=np.uint8)
    return [lows, highs.reshape(-1, 64), whole.astype(np.int8).view(np.uint8), both.view(np.uint8)]


QUANTIZERS: dict[str, Callable[[np.ndarray], list[np.ndarray]]] = {
    "Q4_K": lambda x: _with_minima(x, fifth=False),
    "Q5_K": lambda x: _with_minima(x, fifth=True),
    "Q6_K": _six_bits,
}


def _inverse(x: np.ndarray) -> np.ndarray:
    """Return 1 / x, and 0 for 0."""
    return np.divide(1, x, out=np.zeros_like(x), where=x != 0)


def _fit(x: np.ndarray, low: int, high: int) -> np.ndarray:
    """Find the scales s (N, G) with which s q is nearest to x (N, G, n), for q from low to high."""
    extreme = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)
    best, gain = np.zeros_like(extreme[..., 0]), np.zeros_like(extreme[..., 0])
    for stretch in STRETCHES:
        q = np.clip(np.rint(x * _inverse(extreme / low * stretch)), low, high)
        along, square = (x * q).sum(-1), (q * q).sum(-1)
        fitted = along * _inverse(square)
        # The squared error is that of s = 0, less this.
        better = along * fitted > gain
        best, gain = np.where(better, fitted, best), np.where(better, along * fitted, gain)
    return best


def _fit_with_minima(x: np.ndarray, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Find scales and minima (N, G), at least 0, with which s q - m is nearest to x (N, G, n)."""
    least = np.minimum(x.min(-1, keepdims=True), 0)
    reach = (x.max(-1, keepdims=True) - least) / levels
    count, total = x.shape[-1], x.sum(-1)
    best = np.zeros_like(total), np.zeros_like(total)
    error = np.full_like(total, np.inf)
    for stretch in STRETCHES:
        q = np.clip(np.rint((x - least) * _inverse(reach * stretch)), 0, levels)
        sum_q, square, along = q.sum(-1), (q * q).sum(-1), (x * q).sum(-1)
        s = (count * along - total * sum_q) * _inverse(count * square - sum_q * sum_q)
        m = (s * sum_q - total) / count
        s = np.where(m < 0, along * _inverse(square), s)
        m = np.maximum(m, 0)
        # The sum of (s q - m - x)^2, less that of x^2.
        loss = s * s * square + count * m * m - 2 * (s * m * sum_q + s * along - m * total)
        better = (loss < error) & (s >= 0)
        best = np.where(better, s, best[0]), np.where(better, m, best[1])
        error = np.where(better, loss, error)
    return best


def _in_six_bits(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Write numbers (N, 8) as multiples, up to 63, of one of float16, (N, 1)."""
    both = (x.max(-1, keepdims=True) / 63).astype("<f2").astype(np.float32)
    return both, np.clip(np.rint(x * _inverse(both)), 0, 63).astype(np.uint8)


def _twelve_bytes(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """Pack eight scales and eight minima of 6 bits (N, 8) into (N, 12)."""
    first, second = (y[:, :4] | y[:, 4:] >> 4 << 6 for y in (scales, minima))
    return np.concatenate([first, second, (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4], 1)
