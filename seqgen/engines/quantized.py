"""Quantized matrices for inference on CPUs: int4, int8 and bf16.

Everything but the products keeps float32: embeddings, norms, attention, states and caches. Each
row of x is rounded by itself, and integers add up without rounding, so that what comes out for a
row does not depend on the rows beside it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from seqgen.engines.native.library import library
from seqgen.engines.native.maps import BLOCK, NativeInt4Map, NativeInt8Map

# The largest magnitude of an int8 that is used; -128 has no positive counterpart.
LARGEST = 127
# Rows that are multiplied at a time; what is made on the way takes several times x's memory.
ROWS_AT_ONCE = 1 << 12
# Weights that are rounded at a time, in the processor's cache.
WEIGHTS_AT_ONCE = 1 << 17
TINY = np.float32(1e-30)
# What the number of largest magnitude in a block of int4 may become. With fewer than -8, others are
# rounded in smaller steps, and it is cut off.
EXTREMES = (-7.0, -7.5, -8.0, -8.5, -9.0)


class QuantizedMap:
    """Linear map W x + b with a quantized, fixed W.

    Args:
        weight: W (O, I).
        bias: b (O,), or none.

    Attributes:
        native: computes `product` in the compiled library; None without one.
    """

    is_row_by_row: ClassVar[bool] = True
    native: Callable[[np.ndarray], np.ndarray] | None = None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.outputs = len(weight)
        self.bias = None if bias is None else bias.detach().numpy()
        self.keep(weight.detach())

    def keep(self, weight: Tensor) -> None:
        """Quantize and store W (O, I)."""
        raise NotImplementedError

    def product(self, x: np.ndarray) -> np.ndarray:
        """Compute W x (B, O) of x (B, I)."""
        raise NotImplementedError

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return W x + b (..., O) of x (..., I)."""
        if x.ndim > 2:
            return self(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)
        y = (self.native or self.product)(x)
        return y if self.bias is None else np.add(y, self.bias, out=y)

    def over(self, x: Tensor) -> Tensor:
        """Compute W x + b (..., O) of x (..., I)."""
        pieces = x.detach().reshape(-1, x.shape[-1]).split(ROWS_AT_ONCE)
        rows = [torch.from_numpy(self(piece.numpy())) for piece in pieces]
        return (rows[0] if len(rows) == 1 else torch.cat(rows)).view(*x.shape[:-1], self.outputs)


class Int8Map(QuantizedMap):
    """W and x in int8; one scale per row of W and per `BLOCK` columns of a row of x.

    A scale is the largest magnitude over 127, so that zero stays zero and nothing is cut off. The
    products of the whole numbers of a block are exact, and those of blocks are added up in float32,
    in order.
    """

    def keep(self, weight: Tensor) -> None:
        whole, scales = _in_pieces(_in_8_bits, weight)
        self.scales = scales.numpy()
        if library() is not None:
            self.native = NativeInt8Map(whole.numpy(), self.scales, None)
            return
        blocks = F.pad(whole, (0, -whole.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))
        self.whole = blocks.permute(1, 2, 0).contiguous().numpy()  # (N, BLOCK, O)

    def product(self, x: np.ndarray) -> np.ndarray:
        whole, scale = _rounded(x)
        y = np.zeros((len(x), self.outputs), np.float32)
        for n, matrix in enumerate(self.whole):
            y += _whole_product(whole[:, n], matrix) * scale[:, n]
        y *= self.scales
        return y


class Int4Map(QuantizedMap):
    """W in 4-bit integers (-8 to 7), x in int8; one scale per `BLOCK` columns of a row.

    The products of the whole numbers of a block are exact, and those of blocks are added up in
    float32, in order. A scale is a number of bf16: of those that `EXTREMES` gives, the one with the
    least squared error.
    """

    def keep(self, weight: Tensor) -> None:
        whole, scales = _in_pieces(_in_4_bits, weight)  # (O, N, BLOCK) and (O, N)
        if library() is not None:
            whole = whole.flatten(1)[:, : weight.shape[1]]
            self.native = NativeInt4Map(whole.numpy(), scales.numpy(), None)
            return
        self.whole = whole.permute(1, 2, 0).contiguous().numpy()  # (N, BLOCK, O)
        self.scales = scales.T.contiguous().numpy()  # (N, O)

    def product(self, x: np.ndarray) -> np.ndarray:
        whole, scale = _rounded(x)
        y = np.zeros((len(x), self.outputs), np.float32)
        for n, (matrix, scales) in enumerate(zip(self.whole, self.scales, strict=True)):
            y += _whole_product(whole[:, n], matrix) * (scales * scale[:, n])
        return y


class Bf16Map(QuantizedMap):
    """W and x in bf16; products are accumulated in float32 and rounded to bf16.

    By oneDNN; where it has no bf16 for the processor (AVX2 alone, say), by torch's own product,
    which is slow but has the same rows.
    """

    def keep(self, weight: Tensor) -> None:
        weight = weight.to(torch.bfloat16)
        self.linear = functools.partial(F.linear, weight=weight)
        if torch.ops.mkldnn._is_mkldnn_bf16_supported():
            packed = torch.ops.mkldnn._reorder_linear_weight(weight)
            ask = torch.ops.mkldnn._linear_pointwise.default
            self.linear = lambda rows: ask(rows, packed, None, "none", [], "")

    def product(self, x: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(x).to(torch.bfloat16)
        # One row alone has a kernel of its own, which adds up in another order than that of many.
        rows = torch.cat([x, x]) if len(x) == 1 else x
        return self.linear(rows)[: len(x)].float().numpy()


QUANTIZED = {"bf16": Bf16Map, "int8": Int8Map, "int4": Int4Map}
# What the head is kept in, if not in the same: its errors go into the logits as they are.
OF_HEAD = {"int4": "int8"}


def _rounded(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantize x (B, I) to integers stored as float32 (B, N, BLOCK), with scales (B, N, 1)."""
    blocks = np.pad(x, ((0, 0), (0, -x.shape[1] % BLOCK))).reshape(len(x), -1, BLOCK)
    scale = np.maximum.reduce(np.abs(blocks), -1, keepdims=True)
    np.maximum(scale, TINY, out=scale)
    scale *= np.float32(1 / LARGEST)
    return np.rint(blocks / scale), scale


def _whole_product(x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Multiply x W (B, O) in integers that float32 holds exactly, in any order."""
    return x @ matrix.astype(np.float32)


def _in_pieces(rounded: Callable[[Tensor], tuple[Tensor, Tensor]], weight: Tensor) -> list[Tensor]:
    """Apply a function of rows of W (O, I) in chunks, to limit memory."""
    rows = max(1, WEIGHTS_AT_ONCE // weight.shape[1])
    return [torch.cat(x) for x in zip(*map(rounded, weight.split(rows)), strict=True)]


def _in_8_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize W (O, I) to int8, with scales (O,)."""
    scales = weight.abs().amax(1).clamp_min(float(TINY)) / LARGEST
    return (weight / scales[:, None]).round().to(torch.int8), scales


def _in_4_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize W (O, I) to 4-bit integers (O, N, BLOCK), zero-padded, with scales (O, N)."""
    blocks = F.pad(weight, (0, -weight.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))
    extremes = blocks.gather(2, blocks.abs().argmax(2, keepdim=True))  # (O, N, 1)
    best = torch.full_like(extremes, torch.inf)
    kept, of_kept = torch.zeros_like(blocks), torch.ones_like(extremes)
    for extreme in EXTREMES:
        scales = (extremes / extreme).bfloat16().float()
        whole = (blocks / scales).round_().nan_to_num_(0).clamp_(-8, 7)  # a block of zeros
        error = (whole * scales - blocks).square_().sum(2, keepdim=True)
        better = error < best
        best, kept, of_kept = (
            torch.where(better, new, old)
            for new, old in ((error, best), (whole, kept), (scales, of_kept))
        )
    return kept.to(torch.int8), of_kept.squeeze(2)
