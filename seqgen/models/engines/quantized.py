"""Matrices in fewer bits, for writing and scoring on a CPU: int8, or bf16.

Everything but the products keeps float32: embeddings, norms, attention, states and caches. Each
row of x is rounded by itself, and integers add up without rounding, so that what comes out for a
row does not depend on the rows beside it.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from seqgen.models.engines.native.library import library
from seqgen.models.engines.native.maps import NativeInt8Map

# The largest magnitude of an int8 that is used; -128 has no positive counterpart.
LARGEST = 127
# Rows that are multiplied at a time; what is made on the way takes several times x's memory.
ROWS_AT_ONCE = 1 << 12
TINY = np.float32(1e-30)


class ReducedMap:
    """W x + b, for weights that do not change, W being kept in fewer bits.

    Args:
        weight: W (O, I).
        bias: b (O,), or none.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.outputs = len(weight)
        self.bias = None if bias is None else bias.detach().numpy()
        self.keep(weight.detach())

    def keep(self, weight: Tensor) -> None:
        """Keep W (O, I) in fewer bits."""
        raise NotImplementedError

    def product(self, x: np.ndarray) -> np.ndarray:
        """Return W x (B, O) of x (B, I)."""
        raise NotImplementedError

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return W x + b (..., O) of x (..., I)."""
        if x.ndim > 2:
            return self(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)
        y = self.product(x)
        return y if self.bias is None else np.add(y, self.bias, out=y)

    def over(self, x: Tensor) -> Tensor:
        """Return W x + b (..., O) of x (..., I)."""
        pieces = x.detach().reshape(-1, x.shape[-1]).split(ROWS_AT_ONCE)
        rows = [torch.from_numpy(self(piece.numpy())) for piece in pieces]
        return (rows[0] if len(rows) == 1 else torch.cat(rows)).view(*x.shape[:-1], self.outputs)


class Int8Map(ReducedMap):
    """W and x in int8, with a scale for each row of W and for each row of x.

    The scale of a row is its largest magnitude over 127, so that zero stays zero and nothing is
    cut off. The products of the whole numbers are exact.
    """

    def keep(self, weight: Tensor) -> None:
        scales = weight.abs().amax(1).clamp_min(float(TINY)) / LARGEST  # (O,)
        whole = (weight / scales[:, None]).round().to(torch.int8)
        self.scales, self.native = scales.numpy(), None
        if library() is not None:
            self.native = NativeInt8Map(whole.numpy(), self.scales, None)
            return
        # torch's product of whole numbers is wrong over a single column: it gets a zero beside it.
        # (I, O), a view: it reads the rows of W.
        self.whole = F.pad(whole, (0, max(0, 2 - whole.shape[1]))).t()

    def product(self, x: np.ndarray) -> np.ndarray:
        if self.native is not None:
            return self.native(x)
        scale = np.maximum.reduce(np.abs(x), 1, keepdims=True)  # (B, 1)
        np.maximum(scale, TINY, out=scale)
        scale *= np.float32(1 / LARGEST)
        whole = x / scale
        np.rint(whole, out=whole)
        if whole.shape[1] < len(self.whole):
            whole = np.pad(whole, ((0, 0), (0, 1)))
        y = torch._int_mm(torch.from_numpy(whole.astype(np.int8)), self.whole)
        y = y.numpy().astype(np.float32)  # (B, O)
        y *= self.scales
        y *= scale
        return y


class Bf16Map(ReducedMap):
    """W and x in bf16, whose products are added up in float32 and rounded to bf16.

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


REDUCED = {"bf16": Bf16Map, "int8": Int8Map}
