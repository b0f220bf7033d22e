"""The operations that a cell's equation is written in: under the same names for tensors and arrays.

`TensorOps` and `ArrayOps` have the same functions. The first calls torch and takes part in graphs;
the second calls NumPy, whose calls cost a fraction of torch's, for the steps of few rows. Every
function acts on the last axis or element by element, and writes over none of its arguments.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


class TensorOps:
    """torch's tensors."""

    sigmoid, tanh, relu, exp, where = torch.sigmoid, torch.tanh, torch.relu, torch.exp, torch.where

    @staticmethod
    def show(**values: Tensor) -> None:
        """Let whoever watches the equation see values (B, H) by their names; here nobody does."""

    @staticmethod
    def split(x: Tensor, *parts: int) -> Sequence[Tensor]:
        """Cut x (B, N) into blocks with widths in the ratio of `parts`: (2, 1) is 2/3 and 1/3."""
        unit = x.shape[-1] // sum(parts)
        return x.split([unit * part for part in parts], -1)

    @staticmethod
    def gates(x: Tensor, *functions: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Cut x (B, N) into as many equal blocks as there are functions, and apply each to its own.

        Neighbouring blocks under the same function take one call.
        """
        blocks: list[Tensor] = []
        parts = zip(_runs(functions), TensorOps.split(x, *map(len, _runs(functions))), strict=True)
        for run, block in parts:
            y = run[0](block)
            # A chunk of one would be a node in the graph, whose gradient is a copy.
            blocks += (y,) if len(run) == 1 else y.chunk(len(run), -1)
        return blocks

    @staticmethod
    def join(*parts: Tensor) -> Tensor:
        """Return the parts (B, N_1) ... side by side."""
        return torch.cat(parts, -1)

    @staticmethod
    def softmax(x: Tensor) -> Tensor:
        """Return exp(x) divided by its sum."""
        return x.softmax(-1)

    @staticmethod
    def layer_norm(x: Tensor, gain: Tensor, bias: Tensor | None, eps: float = 1e-5) -> Tensor:
        """Return (x - mean) / sqrt(variance + eps) * gain + bias."""
        return F.layer_norm(x, gain.shape, gain, bias, eps)


@functools.cache
def _runs(functions: tuple[Callable, ...]) -> list[tuple[Callable, ...]]:
    """Return the functions in runs of equal ones."""
    runs: list[tuple[Callable, ...]] = []
    for function in functions:
        if runs and runs[-1][0] is function:
            runs[-1] += (function,)
        else:
            runs.append((function,))
    return runs


class ArrayOps:
    """NumPy's arrays."""

    tanh, exp, where = np.tanh, np.exp, np.where

    @staticmethod
    def sigmoid(x: np.ndarray) -> np.ndarray:
        """Return 1 / (1 + exp(-x)) as (1 + tanh(x / 2)) / 2, which overflows nowhere."""
        y = np.multiply(x, 0.5)
        np.tanh(y, out=y)
        y *= 0.5
        y += 0.5
        return y

    @staticmethod
    def relu(x: np.ndarray) -> np.ndarray:
        """Return max(x, 0)."""
        return np.maximum(x, 0)

    @staticmethod
    def show(**values: np.ndarray) -> None:
        """Let whoever watches the equation see values (B, H) by their names; here nobody does."""

    @staticmethod
    def split(x: np.ndarray, *parts: int) -> list[np.ndarray]:
        """Cut x (B, N) into blocks whose widths are to one another as `parts`."""
        x = np.asarray(x)
        return [x[:, cut] for cut in _cuts(x.shape[1], parts)]

    @staticmethod
    def gates(x: np.ndarray, *functions: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
        """Cut x (B, N) into as many equal blocks as there are functions, and apply each to its own.

        Sigmoid is tanh of half its argument, halved and raised (`sigmoid`). So where there is
        nothing but these two, one call of tanh does for all blocks.
        """
        x = np.asarray(x)
        folded = _folded(functions, x.shape[1], x.dtype.char)
        if folded is None:
            blocks = ArrayOps.split(x, *[1] * len(functions))
            return [f(block) for f, block in zip(functions, blocks, strict=True)]
        slope, offset, cuts = folded
        y = x * slope
        np.tanh(y, y)
        np.multiply(y, slope, y)
        np.add(y, offset, y)
        return [y[:, cut] for cut in cuts]

    @staticmethod
    def join(*parts: np.ndarray) -> np.ndarray:
        """Return the parts (B, N_1) ... side by side."""
        return np.concatenate(parts, -1)

    @staticmethod
    def softmax(x: np.ndarray) -> np.ndarray:
        """Return exp(x) divided by its sum."""
        y = np.exp(x - np.maximum.reduce(x, -1, keepdims=True))
        y /= np.add.reduce(y, -1, keepdims=True)
        return y

    @staticmethod
    def layer_norm(
        x: np.ndarray, gain: np.ndarray, bias: np.ndarray | None, eps: float = 1e-5
    ) -> np.ndarray:
        """Return (x - mean) / sqrt(variance + eps) * gain + bias."""
        x = np.asarray(x)
        reciprocal = 1 / x.shape[-1]
        y = x - reciprocal * np.add.reduce(x, -1, keepdims=True)
        y /= np.sqrt(reciprocal * np.add.reduce(y * y, -1, keepdims=True) + eps)
        y *= gain
        return y if bias is None else np.add(y, bias, out=y)


@functools.lru_cache(maxsize=256)
def _cuts(width: int, parts: tuple[int, ...]) -> list[slice]:
    """Return where blocks begin and end whose widths are to one another as `parts`."""
    ends = [width * total // sum(parts) for total in itertools.accumulate(parts, initial=0)]
    return list(itertools.starmap(slice, itertools.pairwise(ends)))


@functools.lru_cache(maxsize=64)
def _folded(
    functions: tuple[Callable, ...], width: int, kind: str
) -> tuple[np.ndarray, np.ndarray, list[slice]] | None:
    """Return what `gates` multiplies by before and after its tanh, what it adds, and its blocks.

    None where there are other functions. The arrays are (1, N): NumPy is twice as fast where it
    need not broadcast, as with one row.
    """
    if not {ArrayOps.sigmoid, ArrayOps.tanh}.issuperset(functions):
        return None
    sigmoids = np.repeat([f is ArrayOps.sigmoid for f in functions], width // len(functions))[None]
    slope, offset = (np.where(sigmoids, 0.5, other).astype(kind) for other in (1, 0))
    return slope, offset, _cuts(width, (1,) * len(functions))


Ops = type[TensorOps] | type[ArrayOps]
