"""One token of a few rows over NumPy arrays, whose calls cost a fraction of torch's."""

from __future__ import annotations

from collections.abc import Callable

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


class Affine:
    """W x + b, from a copy of the weights as they are now.

    The product is torch's, which uses all threads: each core's own cache then holds its part of
    a small model's weights. For one row its input and output stay where they are, in memory that
    array and tensor share.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """Take W (O, I) and b (O,)."""
        self._weight = weight.detach().clone()
        self._bias = bias.detach().numpy().copy()
        self._x, self._y = weight.new_empty(weight.shape[1]), weight.new_empty(weight.shape[0])
        self._x_row, self._y_row = self._x.numpy()[None], self._y.numpy()[None]

    def __call__(self, *parts: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        """Return W x + b (B, O), x being the `parts` (B, I_1) ... side by side.

        Args:
            parts: the input, in one piece or several.
            bias: (B, O), in place of b.
        """
        bias = self._bias if bias is None else bias
        if len(parts[0]) > 1:
            x = torch.from_numpy(np.concatenate(parts, 1))
            return torch.mm(x, self._weight.T).numpy() + bias
        np.concatenate(parts, 1, out=self._x_row)
        torch.mv(self._weight, self._x, out=self._y)
        return self._y_row + bias


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
