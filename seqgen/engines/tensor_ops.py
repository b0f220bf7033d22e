"""The operations of equations over torch's tensors; see `ops.py`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.utils.checkpoint import checkpoint


class TensorOps:
    """torch's tensors."""

    sigmoid, tanh, relu, exp, where = torch.sigmoid, torch.tanh, torch.relu, torch.exp, torch.where
    silu, gelu_exact, cos, sin = F.silu, F.gelu, torch.cos, torch.sin
    log_sigmoid = F.logsigmoid
    sqrt, expm1, log, at_least = torch.sqrt, torch.expm1, torch.log, torch.clamp

    @staticmethod
    def gelu(x: Tensor) -> Tensor:
        """Return GPT-2's GELU, the tanh approximation of Hendrycks and Gimpel (2016)."""
        return F.gelu(x, approximate="tanh")

    @staticmethod
    def show(**values: Tensor) -> None:
        """Let whoever watches the equation see values (B, H) by their names; here nobody does."""

    @staticmethod
    def split(x: Tensor, *parts: int) -> Sequence[Tensor]:
        """Cut x (..., N) into blocks with widths in the ratio of `parts`: (2, 1) is 2/3 and 1/3."""
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
    def along(axis: int, *parts: Tensor) -> Tensor:
        """Return the parts one after the other along an axis."""
        return torch.cat(parts, axis)

    @staticmethod
    def stack(axis: int, *parts: Tensor) -> Tensor:
        """Return the parts beside one another along a new axis."""
        return torch.stack(parts, axis)

    @staticmethod
    def expand(x: Tensor, *shape: int) -> Tensor:
        """Return x as if it were repeated to another shape."""
        return x.expand(shape)

    @staticmethod
    def cut(x: Tensor, *parts: int) -> Sequence[Tensor]:
        """Cut x (N, ...) into blocks of rows whose numbers are to one another as `parts`."""
        unit = len(x) // sum(parts)
        return x.split([unit * part for part in parts])

    @staticmethod
    def like(x: Tensor, other: Tensor) -> Tensor:
        """Return x in the type of another, where that is."""
        return x.to(other)

    @staticmethod
    def in_little_memory(function: Callable[..., Tensor], *inputs: Any) -> Tensor:
        """Return f(inputs): for the gradient it is done again, and nothing is kept."""
        if not torch.is_grad_enabled():
            return function(*inputs)
        return checkpoint(function, *inputs, use_reentrant=False)

    @staticmethod
    def wide(x: Tensor) -> Tensor:
        """Return x in float32, or in its own type if that is wider."""
        return x.to(torch.promote_types(x.dtype, torch.float32))

    @staticmethod
    def zeros(like: Tensor, *shape: int) -> Tensor:
        """Return zeros of the type of `like`, where it is."""
        return like.new_zeros(shape)

    @staticmethod
    def empty(like: Tensor, *shape: int) -> Tensor:
        """Return a tensor of the type of `like`, where it is, that is yet to be filled."""
        return like.new_empty(shape)

    @staticmethod
    def ints(like: Tensor, numbers: Sequence[int]) -> Tensor:
        """Return whole numbers as int64, where `like` is."""
        return torch.tensor(numbers, dtype=torch.int64, device=like.device)

    @staticmethod
    def eye(like: Tensor, size: int) -> Tensor:
        """Return the identity (N, N) of the type of `like`, where it is."""
        return torch.eye(size, dtype=like.dtype, device=like.device)

    @staticmethod
    def copy(x: Tensor) -> Tensor:
        """Return a copy that shares nothing with x."""
        return x.clone()

    @staticmethod
    def detach(x: Tensor) -> Tensor:
        """Return x without its graph."""
        return x.detach()

    @staticmethod
    def put(room: Tensor, rows: Sequence[int], x: Tensor) -> Tensor:
        """Return `room` (N, ...), which is used up, with x (M, ...) in some of its rows."""
        return room.index_copy(0, torch.tensor(rows, device=x.device), x)

    @staticmethod
    def softmax(x: Tensor) -> Tensor:
        """Return exp(x) divided by its sum."""
        return x.softmax(-1)

    @staticmethod
    def log_softmax(x: Tensor) -> Tensor:
        """Return x less the logarithm of the sum of exp(x)."""
        return x.log_softmax(-1)

    @staticmethod
    def log_of_sum(*terms: Tensor) -> Tensor:
        """Return log(exp(a) + exp(b) + ...) of terms of one shape, in float32 or wider."""
        total = torch.stack(terms).logsumexp(0)
        return total.to(torch.promote_types(total.dtype, torch.float32))

    @staticmethod
    def of(array: np.ndarray, like: Tensor) -> Tensor:
        """Return an array as a tensor where `like` is."""
        return torch.from_numpy(array).to(like.device)

    @staticmethod
    def logsumexp(x: Tensor) -> Tensor:
        """Return log(sum(exp(x))) of the last axis, (..., 1)."""
        return x.logsumexp(-1, keepdim=True)

    @staticmethod
    def pick(x: Tensor, ids: Tensor) -> Tensor:
        """Return x[..., ids]: of x (..., V) the values at ids (..., N)."""
        return x.gather(-1, ids)

    @staticmethod
    def log_total(x: Tensor) -> Tensor:
        """Return log(sum(exp(x))) of the last axis, (...), of x that may be -inf all along it."""
        return x.logsumexp(-1)

    @staticmethod
    def full_precision(like: Tensor) -> AbstractContextManager:
        """Return a context without autocast where `like` is."""
        return torch.autocast(like.device.type, enabled=False)

    @staticmethod
    def blocks(x: Tensor, width: int, step: int) -> Tensor:
        """Return blocks (B, K, ..., W) of x (B, T, ...), one every so many places."""
        return x.unfold(1, width, step)

    @staticmethod
    def added_at(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
        """Return x (..., V) with values (..., W) added to those at places (..., W)."""
        return x.scatter_add(-1, places, values.to(x.dtype))

    @staticmethod
    def at_places(x: Tensor, places: Tensor) -> Tensor:
        """Return of x (S, L, E) what stands at places (S, M) along the second axis."""
        return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))

    @staticmethod
    def first_best(x: Tensor) -> Tensor:
        """Return the place of the largest value in the last axis; of equals the first."""
        best = x.max(-1, keepdim=True).values
        return torch.where(x == best, TensorOps.count(x, x.shape[-1]), x.shape[-1]).min(-1).values

    @staticmethod
    def most(x: Tensor, axis: int) -> Tensor:
        """Return the largest values along an axis."""
        return x.amax(axis)

    @staticmethod
    def count(like: Tensor, size: int) -> Tensor:
        """Return 0 to N - 1, where `like` is."""
        return torch.arange(size, device=like.device)

    @staticmethod
    def floats(end: int, step: int = 1) -> Tensor:
        """Return 0, `step`, ... below `end`, as float32."""
        return torch.arange(0, end, step, dtype=torch.float32)

    @staticmethod
    def array(x: Tensor) -> np.ndarray:
        """Return x as an array."""
        return x.cpu().numpy()

    @staticmethod
    def layer_norm(x: Tensor, gain: Tensor, bias: Tensor | None, eps: float = 1e-5) -> Tensor:
        """Return (x - mean) / sqrt(variance + eps) * gain + bias."""
        return F.layer_norm(x, gain.shape, gain, bias, eps)

    @staticmethod
    def rms_norm(x: Tensor, gain: Tensor, eps: float = 1e-5) -> Tensor:
        """Return x / sqrt(mean(x^2) + eps) * gain (Zhang and Sennrich 2019)."""
        return F.rms_norm(x, gain.shape, gain, eps)


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
