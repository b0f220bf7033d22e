"""Operations for model equations on torch tensors; see `ops.py`."""

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
    """Operations on torch tensors."""

    sigmoid, tanh, relu, exp, where = torch.sigmoid, torch.tanh, torch.relu, torch.exp, torch.where
    silu, gelu_exact, cos, sin = F.silu, F.gelu, torch.cos, torch.sin
    log_sigmoid = F.logsigmoid
    sqrt, expm1, log, at_least = torch.sqrt, torch.expm1, torch.log, torch.clamp

    @staticmethod
    def gelu(x: Tensor) -> Tensor:
        """Compute GPT-2's GELU, the tanh approximation of Hendrycks and Gimpel (2016)."""
        return F.gelu(x, approximate="tanh")

    @staticmethod
    def show(**values: Tensor) -> None:
        """Hook that reports named values (B, H) to an inspector; does nothing here."""

    @staticmethod
    def split(x: Tensor, *parts: int) -> Sequence[Tensor]:
        """Split x (..., N) into blocks with widths in the ratio of `parts`."""
        unit = x.shape[-1] // sum(parts)
        return x.split([unit * part for part in parts], -1)

    @staticmethod
    def gates(x: Tensor, *functions: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Split x (B, N) into equal blocks and apply one function to each.

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
        """Concatenate the parts (B, N_1) ... along the last axis."""
        return torch.cat(parts, -1)

    @staticmethod
    def along(axis: int, *parts: Tensor) -> Tensor:
        """Concatenate the parts along an axis."""
        return torch.cat(parts, axis)

    @staticmethod
    def stack(axis: int, *parts: Tensor) -> Tensor:
        """Stack the parts along a new axis."""
        return torch.stack(parts, axis)

    @staticmethod
    def expand(x: Tensor, *shape: int) -> Tensor:
        """Broadcast x to another shape."""
        return x.expand(shape)

    @staticmethod
    def cut(x: Tensor, *parts: int) -> Sequence[Tensor]:
        """Split x (N, ...) into blocks of rows with sizes in the ratio of `parts`."""
        unit = len(x) // sum(parts)
        return x.split([unit * part for part in parts])

    @staticmethod
    def like(x: Tensor, other: Tensor) -> Tensor:
        """Cast x to another tensor's type and device."""
        return x.to(other)

    @staticmethod
    def in_little_memory(function: Callable[..., Tensor], *inputs: Any) -> Tensor:
        """Call f(inputs) with gradient checkpointing: recomputed in the backward pass."""
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return function(*inputs)
        return checkpoint(function, *inputs, use_reentrant=False)

    @staticmethod
    def wide(x: Tensor) -> Tensor:
        """Cast x to float32, unless its type is wider."""
        return x.to(torch.promote_types(x.dtype, torch.float32))

    @staticmethod
    def zeros(like: Tensor, *shape: int) -> Tensor:
        """Make zeros of `like`'s type and device."""
        return like.new_zeros(shape)

    @staticmethod
    def empty(like: Tensor, *shape: int) -> Tensor:
        """Make an uninitialized tensor of `like`'s type and device."""
        return like.new_empty(shape)

    @staticmethod
    def ints(like: Tensor, numbers: Sequence[int]) -> Tensor:
        """Convert integers to an int64 tensor on `like`'s device."""
        return torch.tensor(numbers, dtype=torch.int64, device=like.device)

    @staticmethod
    def eye(like: Tensor, size: int) -> Tensor:
        """Make the identity matrix (N, N) of `like`'s type and device."""
        return torch.eye(size, dtype=like.dtype, device=like.device)

    @staticmethod
    def copy(x: Tensor) -> Tensor:
        """Copy x."""
        return x.clone()

    @staticmethod
    def detach(x: Tensor) -> Tensor:
        """Detach x from the autograd graph."""
        return x.detach()

    @staticmethod
    def put(room: Tensor, rows: Sequence[int], x: Tensor) -> Tensor:
        """Write x (M, ...) into some rows of the buffer `room` (N, ...), and return it."""
        return room.index_copy(0, torch.tensor(rows, device=x.device), x)

    @staticmethod
    def softmax(x: Tensor) -> Tensor:
        """Compute the softmax of x."""
        return x.softmax(-1)

    @staticmethod
    def log_softmax(x: Tensor) -> Tensor:
        """Compute the log-softmax of x."""
        return x.log_softmax(-1)

    @staticmethod
    def log_of_sum(*terms: Tensor) -> Tensor:
        """Compute log(exp(a) + exp(b) + ...) elementwise, in float32 or wider."""
        total = torch.stack(terms).logsumexp(0)
        return total.to(torch.promote_types(total.dtype, torch.float32))

    @staticmethod
    def of(array: np.ndarray, like: Tensor) -> Tensor:
        """Convert an array to a tensor on `like`'s device."""
        return torch.from_numpy(array).to(like.device)

    @staticmethod
    def logsumexp(x: Tensor) -> Tensor:
        """Compute log(sum(exp(x))) over the last axis, (..., 1)."""
        return x.logsumexp(-1, keepdim=True)

    @staticmethod
    def pick(x: Tensor, ids: Tensor) -> Tensor:
        """Gather x[..., ids]: from x (..., V), the values at ids (..., N)."""
        return x.gather(-1, ids)

    @staticmethod
    def full_precision(like: Tensor) -> AbstractContextManager:
        """Return a context without autocast on `like`'s device."""
        return torch.autocast(like.device.type, enabled=False)

    @staticmethod
    def blocks(x: Tensor, width: int, step: int) -> Tensor:
        """Cut x (B, T, ...) into windows (B, K, ..., W), `step` positions apart."""
        return x.unfold(1, width, step)

    @staticmethod
    def added_at(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
        """Add values (..., W) to x (..., V) at indices `places` (..., W)."""
        return x.scatter_add(-1, places, values.to(x.dtype))

    @staticmethod
    def at_places(x: Tensor, places: Tensor) -> Tensor:
        """Gather positions `places` (S, M) along the second axis of x (S, L, E)."""
        return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))

    @staticmethod
    def first_best(x: Tensor) -> Tensor:
        """Compute the argmax over the last axis; the first of equals."""
        best = x.max(-1, keepdim=True).values
        return torch.where(x == best, TensorOps.count(x, x.shape[-1]), x.shape[-1]).min(-1).values

    @staticmethod
    def most(x: Tensor, axis: int) -> Tensor:
        """Compute the maximum along an axis."""
        return x.amax(axis)

    @staticmethod
    def count(like: Tensor, size: int) -> Tensor:
        """Make the integers 0 to N - 1 on `like`'s device."""
        return torch.arange(size, device=like.device)

    @staticmethod
    def floats(end: int, step: int = 1) -> Tensor:
        """Make 0, `step`, ... below `end` as float32."""
        return torch.arange(0, end, step, dtype=torch.float32)

    @staticmethod
    def array(x: Tensor) -> np.ndarray:
        """Convert x to an array."""
        return x.cpu().numpy()

    @staticmethod
    def layer_norm(x: Tensor, gain: Tensor, bias: Tensor | None, eps: float = 1e-5) -> Tensor:
        """Compute (x - mean) / sqrt(variance + eps) * gain + bias."""
        return F.layer_norm(x, gain.shape, gain, bias, eps)

    @staticmethod
    def rms_norm(x: Tensor, gain: Tensor, eps: float = 1e-5) -> Tensor:
        """Compute x / sqrt(mean(x^2) + eps) * gain (Zhang and Sennrich 2019)."""
        return F.rms_norm(x, gain.shape, gain, eps)


@functools.cache
def _runs(functions: tuple[Callable, ...]) -> list[tuple[Callable, ...]]:
    """Group functions into runs of equal ones."""
    runs: list[tuple[Callable, ...]] = []
    for function in functions:
        if runs and runs[-1][0] is function:
            runs[-1] += (function,)
        else:
            runs.append((function,))
    return runs
