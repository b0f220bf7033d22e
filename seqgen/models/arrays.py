"""One token of a few rows over NumPy arrays, whose calls cost a fraction of torch's."""

from __future__ import annotations

import functools
import math
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

Arrays = tuple[np.ndarray, ...]
# One step of a layer: its input (B, E), or the ids (B,) of its inputs, and the past state's
# arrays (B, H), to the next ones; h is first.
ArrayStep = Callable[[np.ndarray, Arrays], Arrays]
ArrayMap = Callable[[np.ndarray], np.ndarray]
# Input or ids, and h (B, H), to what the gates get from both, (B, G H).
Gates = Callable[[np.ndarray, np.ndarray], np.ndarray]
# Up to so many rows NumPy attends faster than torch's kernel begins.
FEW_QUERIES = 3
# For more inputs than these, a table of what each comes to is slow to make and large.
MOST_KNOWN = 2048


class Affine:
    """W x + b, for weights that do not change.

    How the product is asked for follows from the machine and the rows alone, so that a seed
    gives the same text each time. What each way needs is laid out when it is first taken.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Take W (O, I) and b (O,), or no b."""
        weight, bias = weight.detach(), None if bias is None else bias.detach()
        self._one, self._some = _Threaded, _Whole
        if not is_intels():
            self._one = _Single
            self._some = _Packed if weight.dtype == torch.float32 and has_packed() else _Whole
        self._product = functools.cache(lambda kind: kind(weight, bias))

    def __call__(self, *parts: np.ndarray) -> np.ndarray:
        """Return W x + b (B, O), x being the `parts` (B, I_1) ... side by side."""
        x = parts[0] if len(parts) == 1 else np.concatenate(parts, 1)
        return self._product(self._one if len(x) == 1 else self._some)(x)


class _Threaded:
    """W x + b (1, O) of x (1, I), by all threads: each core's cache then holds its part of W."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, None if bias is None else bias.numpy()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        y = torch.mv(self.weight, torch.from_numpy(x)[0]).numpy()[None]
        return _plus(y, self.bias)


class _Single:
    """W x + b (1, O) of x (1, I) by one thread.

    MKL knows how to share it for the processors of its own maker only; elsewhere waking a second
    thread costs more than it saves.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.transposed = weight.T.contiguous().numpy()  # (I, O)
        self.bias = None if bias is None else bias.numpy()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        y = x @ self.transposed
        return _plus(y, self.bias)


class _Whole:
    """W x + b (B, O) of x (B, I); with few rows W^T lying so takes up to half less time."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.transposed = weight.T.contiguous()  # (I, O)
        self.bias = None if bias is None else bias.numpy()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        y = torch.mm(torch.from_numpy(x), self.transposed).numpy()
        return _plus(y, self.bias)


def _plus(y: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Add b (O,), if there is one, to y (B, O), which is written over."""
    return y if bias is None else np.add(y, bias, out=y)


class _Packed:
    """W x + b (B, O) of x (B, I) by oneDNN, W being laid out in the blocks its kernels read.

    With 4 to 16 rows a fourth to a third less time on AMD's processors than what MKL takes.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = torch.ops.mkldnn._reorder_linear_weight(weight), bias
        self.linear = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.linear(torch.from_numpy(x), self.weight, self.bias, "none", [], "").numpy()


@functools.cache
def is_intels() -> bool:
    """Return whether the processor is Intel's; where that cannot be told, it is not."""
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False


@functools.cache
def has_packed() -> bool:
    """Return whether this build of torch has what its own compiler uses for packed weights."""
    names = "_reorder_linear_weight", "_linear_pointwise"
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return x86 and all(hasattr(torch.ops.mkldnn, name) for name in names)


def attend(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, there: np.ndarray | None
) -> np.ndarray:
    """Return softmax(K q / sqrt(D)) V (B, heads, D) for one query a row.

    Args:
        q: (B, heads, D).
        keys: (B, heads, n, D).
        values: as keys.
        there: (B, n), which of them a row has; None where each has all.
    """
    if len(q) > FEW_QUERIES:
        mask = None if there is None else torch.from_numpy(there)[:, None, None]
        tensors = map(torch.from_numpy, (q[:, :, None], keys, values))
        return F.scaled_dot_product_attention(*tensors, attn_mask=mask)[:, :, 0].numpy()
    scores = q[:, :, None] @ keys.swapaxes(2, 3)  # (B, heads, 1, n)
    scores *= 1 / math.sqrt(q.shape[-1])
    if there is not None:
        scores[~there[:, None, None].repeat(q.shape[1], 1)] = -np.inf
    scores -= np.maximum.reduce(scores, -1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= np.add.reduce(scores, -1, keepdims=True)
    return (scores @ values)[:, :, 0]


def input_map(weight: Tensor, bias: Tensor, inputs: Tensor | None) -> ArrayMap:
    """Return W x + b as a function of x (B, I), or of the ids (B,) of vectors `inputs` (V, I)."""
    affine = Affine(weight, bias)
    if inputs is None:
        return affine
    if inputs.is_sparse or len(inputs) <= MOST_KNOWN:
        return (inputs @ weight.T + bias).detach().numpy().__getitem__
    vectors = inputs.detach().numpy()
    return lambda ids: affine(vectors[ids])


def gates_of(weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, inputs: Tensor | None) -> Gates:
    """Return W_ih x + W_hh h + b as a function over arrays.

    Args:
        weight_ih: (G H, E).
        weight_hh: (G H, H).
        bias: (G H,).
        inputs: (V, E), the vectors that x names by their ids; None where x (B, E) is the input
            itself.
    """
    if inputs is None:
        return Affine(torch.hstack([weight_ih, weight_hh]), bias)
    of_input, of_past = input_map(weight_ih, bias, inputs), Affine(weight_hh, None)
    return lambda ids, h: of_past(h) + of_input(ids)
