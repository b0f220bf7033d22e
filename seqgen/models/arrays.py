"""One token of a few rows over NumPy arrays, whose calls cost a fraction of torch's."""

from __future__ import annotations

import functools
import math
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
MOST_PIECES = 4
# Up to so many rows NumPy attends faster than torch's kernel begins.
FEW_QUERIES = 3


class Affine:
    """W x + b, from a copy of the weights as they are now.

    How the product is asked for follows from the machine and the rows alone, so that a seed
    gives the same text each time. What each way needs is laid out when it is first taken.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Take W (O, I) and b (O,), or no b."""
        own = weight.detach().clone()
        self._bias = None if bias is None else bias.detach().numpy().copy()
        self._one, self._some = (_Threaded, _Whole) if is_intels() else (_Single, _InPieces)
        self._product = functools.cache(lambda kind: kind(own))

    def __call__(self, *parts: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        """Return W x + b (B, O), x being the `parts` (B, I_1) ... side by side.

        Args:
            parts: the input, in one piece or several.
            bias: (B, O), in place of b.
        """
        x = parts[0] if len(parts) == 1 else np.concatenate(parts, 1)
        y = self._product(self._one if len(x) == 1 else self._some)(x)
        bias = self._bias if bias is None else bias
        return y if bias is None else y + bias


class _Threaded:
    """W x (1, O) of x (1, I), by all threads: each core's cache then holds its part of W.

    Input and output stay where they are, in memory that array and tensor share.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        with torch.inference_mode(False):  # what is made within cannot be written to outside
            self.y, self.x = (weight.new_empty(size) for size in weight.shape)
        self.x_row, self.y_row = self.x.numpy()[None], self.y.numpy()[None]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.x_row[:] = x
        torch.mv(self.weight, self.x, out=self.y)
        return self.y_row.copy()


class _Single:
    """W x (1, O) of x (1, I) by one thread.

    MKL knows how to share it for the processors of its own maker only; elsewhere waking a second
    thread costs more than it saves.
    """

    def __init__(self, weight: Tensor) -> None:
        self.transposed = weight.T.contiguous().numpy()  # (I, O)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x @ self.transposed


class _Whole:
    """W x (B, O) of x (B, I); with few rows W^T lying so takes up to half less time."""

    def __init__(self, weight: Tensor) -> None:
        self.transposed = weight.T.contiguous()  # (I, O)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return torch.mm(torch.from_numpy(x), self.transposed).numpy()


class _InPieces:
    """W x (B, O) of x (B, I), a few rows of W at a time: so MKL shares it among any threads."""

    def __init__(self, weight: Tensor) -> None:
        pieces = next(n for n in range(MOST_PIECES, 0, -1) if len(weight) % n == 0)
        shape = pieces, len(weight) // pieces, -1
        self.pieces = weight.view(shape).mT.contiguous()  # (pieces, I, O / pieces)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        columns = torch.from_numpy(x).expand(len(self.pieces), -1, -1)  # (pieces, B, I)
        y = torch.bmm(columns, self.pieces)  # (pieces, B, O / pieces)
        return y.transpose(0, 1).reshape(len(x), -1).numpy()


@functools.cache
def is_intels() -> bool:
    """Return whether the processor is Intel's; where that cannot be told, it is not."""
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False


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
    if inputs is None:
        return Affine(weight, bias)
    return F.linear(inputs, weight, bias).detach().numpy().__getitem__


def gates_of(weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, inputs: Tensor | None) -> Gates:
    """Return W_ih x + W_hh h + b as a function over arrays.

    Args:
        weight_ih: (G H, E).
        weight_hh: (G H, H).
        bias: (G H,).
        inputs: (V, E), the vectors that x names by their ids, each worked out once; None where
            x (B, E) is the input itself.
    """
    if inputs is None:
        return Affine(torch.hstack([weight_ih, weight_hh]), bias)
    of_input, of_past = input_map(weight_ih, bias, inputs), Affine(weight_hh, bias)
    return lambda ids, h: of_past(h, bias=of_input(ids))
