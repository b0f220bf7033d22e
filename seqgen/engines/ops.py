"""Operations for model equations, under the same names for NumPy arrays and torch tensors.

`ArrayOps` and `TensorOps` (`tensor_ops.py`) have the same functions. The first calls NumPy, whose
calls cost a fraction of torch's, for reading and writing without PyTorch; the second calls torch
and takes part in graphs. Every function acts on the last axis or element by element, unless it
says otherwise, and writes over none of its arguments.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import math
import mmap
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

# `ArrayOps` or `TensorOps`; an array or a tensor. A module that names both needs no torch for it.
Ops = type
Leaf = Any
F = TypeVar("F", bound=Callable)
# Damaged weights are an error of one line where probabilities are no numbers.
warnings.filterwarnings(
    "ignore", category=RuntimeWarning, module=r"seqgen\.(engines|generation|models)\."
)
_erf = np.frompyfunc(math.erf, 1, 1)
# From so many bytes on NumPy asks Linux for pages of 2 MB.
HUGE_FROM = 1 << 22


def ops_of(x: Leaf) -> Ops:
    """Select the operations for an array or a tensor."""
    if isinstance(x, np.ndarray):
        return ArrayOps
    from seqgen.engines.tensor_ops import TensorOps

    return TensorOps


def without_gradients(function: F) -> F:
    """Decorate a function, or generator function, to run without autograd.

    Where torch is not loaded there is none to record, and it stays so.
    """
    generates = inspect.isgeneratorfunction(function)

    @functools.wraps(function)
    def called(*args: object, **kwargs: object) -> object:
        torch = sys.modules.get("torch")
        if torch is None or (not generates and torch.is_inference_mode_enabled()):
            return function(*args, **kwargs)
        if generates:  # torch leaves the mode wherever the generator waits
            return torch.inference_mode()(function)(*args, **kwargs)
        with torch.inference_mode():
            return function(*args, **kwargs)

    return called


def is_leaf(x: Any) -> bool:
    """Check whether x is an array or a tensor."""
    return hasattr(x, "ndim")


def padded(x: Leaf, axis: int, size: int) -> Leaf:
    """Pad x with zeros at the end of an axis to a size."""
    if x.shape[axis] == size:
        return x
    ops, shape = ops_of(x), list(x.shape)
    shape[axis] = size - x.shape[axis]
    return ops.along(axis, x, ops.zeros(x, *shape))


def shifted(x: Leaf, before: int, after: int, value: int = 0) -> Leaf:
    """Pad x (B, T, ...) with a value before and after; negative `before` crops."""
    ops, x = ops_of(x), x[:, max(0, -before) :]
    first, last = (
        ops.zeros(x, len(x), max(0, count), *x.shape[2:]) + value for count in (before, after)
    )
    return ops.along(1, first, x, last)


class ArrayOps:
    """Operations on NumPy arrays."""

    tanh, exp, where, cos, sin = np.tanh, np.exp, np.where, np.cos, np.sin
    sqrt, expm1, log, at_least = np.sqrt, np.expm1, np.log, np.maximum

    @staticmethod
    def sigmoid(x: np.ndarray) -> np.ndarray:
        """Compute 1 / (1 + exp(-x)) as (1 + tanh(x / 2)) / 2, which never overflows."""
        y = np.multiply(x, 0.5)
        np.tanh(y, out=y)
        y *= 0.5
        y += 0.5
        return y

    @staticmethod
    def relu(x: np.ndarray) -> np.ndarray:
        """Compute max(x, 0)."""
        return np.maximum(x, 0)

    @staticmethod
    def silu(x: np.ndarray) -> np.ndarray:
        """Compute x sigmoid(x)."""
        y = ArrayOps.sigmoid(x)
        y *= x
        return y

    @staticmethod
    def gelu(x: np.ndarray) -> np.ndarray:
        """Compute GPT-2's GELU, the tanh approximation of Hendrycks and Gimpel (2016)."""
        scale = math.sqrt(2 / math.pi)
        y = x * x
        y *= 0.044715 * scale
        y += scale
        y *= x
        np.tanh(y, out=y)
        y += 1
        y *= x
        y *= 0.5
        return y

    @staticmethod
    def gelu_exact(x: np.ndarray) -> np.ndarray:
        """Compute x P(X <= x) for a standard normal X; slow, element by element."""
        y = _erf(x * math.sqrt(0.5)).astype(x.dtype, copy=False)
        y += 1
        y *= x
        y *= 0.5
        return y

    @staticmethod
    def show(**values: np.ndarray) -> None:
        """Hook that reports named values (B, H) to an inspector; does nothing here."""

    @staticmethod
    def split(x: np.ndarray, *parts: int) -> list[np.ndarray]:
        """Split x (..., N) into blocks with widths in the ratio of `parts`."""
        x = np.asanyarray(x)
        return [x[..., cut] for cut in _cuts(x.shape[-1], parts)]

    @staticmethod
    def gates(x: np.ndarray, *functions: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
        """Split x (B, N) into equal blocks and apply one function to each.

        Sigmoid is tanh of half its argument, halved and raised (`sigmoid`). So where there is
        nothing but these two, one call of tanh does for all blocks.
        """
        x = np.asanyarray(x)
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
        """Concatenate the parts (B, N_1) ... along the last axis."""
        return np.concatenate(parts, -1)

    @staticmethod
    def along(axis: int, *parts: np.ndarray) -> np.ndarray:
        """Concatenate the parts along an axis."""
        return np.concatenate(parts, axis)

    @staticmethod
    def stack(axis: int, *parts: np.ndarray) -> np.ndarray:
        """Stack the parts along a new axis."""
        return np.stack(parts, axis)

    @staticmethod
    def expand(x: np.ndarray, *shape: int) -> np.ndarray:
        """Broadcast x to another shape."""
        return np.broadcast_to(x, shape)

    @staticmethod
    def cut(x: np.ndarray, *parts: int) -> list[np.ndarray]:
        """Split x (N, ...) into blocks of rows with sizes in the ratio of `parts`."""
        return [x[cut] for cut in _cuts(len(x), parts)]

    @staticmethod
    def like(x: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Cast x to another array's type."""
        return x.astype(other.dtype, copy=False)

    @staticmethod
    def wide(x: np.ndarray) -> np.ndarray:
        """Cast x to float32, unless its type is wider."""
        return x

    @staticmethod
    def zeros(like: np.ndarray, *shape: int) -> np.ndarray:
        """Make zeros of `like`'s type."""
        return np.zeros(shape, like.dtype)

    @staticmethod
    def empty(like: np.ndarray, *shape: int) -> np.ndarray:
        """Make an uninitialized array of `like`'s type.

        What is never used of it takes no memory, as it would in pages of 2 MB.
        """
        size = math.prod(shape) * like.itemsize
        if size < HUGE_FROM or not hasattr(mmap, "MADV_NOHUGEPAGE"):
            return np.empty(shape, like.dtype)
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel that has no such pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        return np.ndarray(shape, like.dtype, memory)

    @staticmethod
    def ints(like: np.ndarray, numbers: Sequence[int]) -> np.ndarray:
        """Convert integers to an int64 array."""
        return np.array(numbers, np.int64)

    @staticmethod
    def eye(like: np.ndarray, size: int) -> np.ndarray:
        """Make the identity matrix (N, N) of `like`'s type."""
        return np.eye(size, dtype=like.dtype)

    @staticmethod
    def copy(x: np.ndarray) -> np.ndarray:
        """Copy x."""
        return x.copy()

    @staticmethod
    def detach(x: np.ndarray) -> np.ndarray:
        """Return x, since arrays have no autograd graph."""
        return x

    @staticmethod
    def put(room: np.ndarray, rows: Sequence[int], x: np.ndarray) -> np.ndarray:
        """Write x (M, ...) into some rows of the buffer `room` (N, ...) in place, and return it."""
        room[rows] = x
        return room

    @staticmethod
    def softmax(x: np.ndarray) -> np.ndarray:
        """Compute the softmax of x."""
        y = np.exp(x - np.maximum.reduce(x, -1, keepdims=True))
        y /= np.add.reduce(y, -1, keepdims=True)
        return y

    @staticmethod
    def log_softmax(x: np.ndarray) -> np.ndarray:
        """Compute the log-softmax of x."""
        return x - ArrayOps.logsumexp(x)

    @staticmethod
    def in_little_memory(function: Callable[..., np.ndarray], *inputs: Any) -> np.ndarray:
        """Call f(inputs) with gradient checkpointing, which arrays do not need."""
        return function(*inputs)

    @staticmethod
    def log_sigmoid(x: np.ndarray) -> np.ndarray:
        """Compute the logarithm of the sigmoid of x."""
        return -np.logaddexp(0, -x)

    @staticmethod
    def log_of_sum(*terms: np.ndarray) -> np.ndarray:
        """Compute log(exp(a) + exp(b) + ...) elementwise, in float32 or wider."""
        return np.logaddexp.reduce(terms)

    @staticmethod
    def of(array: np.ndarray, like: np.ndarray) -> np.ndarray:
        """Return an array as it is."""
        return array

    @staticmethod
    def logsumexp(x: np.ndarray) -> np.ndarray:
        """Compute log(sum(exp(x))) over the last axis, (..., 1)."""
        most = np.maximum.reduce(x, -1, keepdims=True)
        return most + np.log(np.add.reduce(np.exp(x - most), -1, keepdims=True))

    @staticmethod
    def pick(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Gather x[..., ids]: from x (..., V), the values at ids (..., N)."""
        return np.take_along_axis(x, ids, -1)

    @staticmethod
    def full_precision(like: np.ndarray) -> contextlib.AbstractContextManager:
        """Return a context without autocast, which arrays do not have."""
        return contextlib.nullcontext()

    @staticmethod
    def blocks(x: np.ndarray, width: int, step: int) -> np.ndarray:
        """Cut x (B, T, ...) into windows (B, K, ..., W), `step` positions apart."""
        return np.lib.stride_tricks.sliding_window_view(x, width, 1)[:, ::step]

    @staticmethod
    def added_at(x: np.ndarray, places: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Add values (..., W) to x (..., V) at indices `places` (..., W)."""
        size = x.shape[-1]
        rows = np.arange(0, x.size, size)[:, None]
        flat = (rows + places.reshape(len(rows), -1)).ravel()
        sums = np.bincount(flat, values.ravel(), x.size).reshape(x.shape)
        return (x + sums).astype(x.dtype)

    @staticmethod
    def at_places(x: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Gather positions `places` (S, M) along the second axis of x (S, L, E)."""
        return np.take_along_axis(x, places[..., None], 1)

    @staticmethod
    def first_best(x: np.ndarray) -> np.ndarray:
        """Compute the argmax over the last axis; the first of equals."""
        return x.argmax(-1)

    @staticmethod
    def most(x: np.ndarray, axis: int) -> np.ndarray:
        """Compute the maximum along an axis."""
        return np.maximum.reduce(x, axis)

    @staticmethod
    def count(like: np.ndarray, size: int) -> np.ndarray:
        """Make the integers 0 to N - 1."""
        return np.arange(size)

    @staticmethod
    def floats(end: int, step: int = 1) -> np.ndarray:
        """Make 0, `step`, ... below `end` as float32."""
        return np.arange(0, end, step, dtype=np.float32)

    @staticmethod
    def array(x: np.ndarray) -> np.ndarray:
        """Convert x to an array."""
        return x

    @staticmethod
    def layer_norm(
        x: np.ndarray, gain: np.ndarray, bias: np.ndarray | None, eps: float = 1e-5
    ) -> np.ndarray:
        """Compute (x - mean) / sqrt(variance + eps) * gain + bias."""
        x = np.asanyarray(x)
        reciprocal = 1 / x.shape[-1]
        y = x - reciprocal * np.add.reduce(x, -1, keepdims=True)
        y /= np.sqrt(reciprocal * np.add.reduce(y * y, -1, keepdims=True) + eps)
        y *= gain
        return y if bias is None else np.add(y, bias, out=y)

    @staticmethod
    def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float = 1e-5) -> np.ndarray:
        """Compute x / sqrt(mean(x^2) + eps) * gain (Zhang and Sennrich 2019)."""
        scale = 1 / x.shape[-1] * np.add.reduce(x * x, -1, keepdims=True)  # (..., 1)
        scale += eps
        y = x / np.sqrt(scale, out=scale)
        y *= gain
        return y


@functools.lru_cache(maxsize=256)
def _cuts(width: int, parts: tuple[int, ...]) -> list[slice]:
    """Compute slices that divide a width in the ratio of `parts`."""
    ends = [width * total // sum(parts) for total in itertools.accumulate(parts, initial=0)]
    return list(itertools.starmap(slice, itertools.pairwise(ends)))


@functools.lru_cache(maxsize=64)
def _folded(
    functions: tuple[Callable, ...], width: int, kind: str
) -> tuple[np.ndarray, np.ndarray, list[slice]] | None:
    """Build the factors and offset by which `gates` computes tanh and sigmoids with one tanh.

    None where there are other functions. The arrays are (1, N): NumPy is twice as fast where it
    need not broadcast, as with one row.
    """
    if not {ArrayOps.sigmoid, ArrayOps.tanh}.issuperset(functions):
        return None
    sigmoids = np.repeat([f is ArrayOps.sigmoid for f in functions], width // len(functions))[None]
    slope, offset = (np.where(sigmoids, 0.5, other).astype(kind) for other in (1, 0))
    return slope, offset, _cuts(width, (1,) * len(functions))
