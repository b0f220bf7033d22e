"""The operations that equations are written in: under the same names for arrays and for tensors.

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
    """Return the operations for an array, or for a tensor."""
    if isinstance(x, np.ndarray):
        return ArrayOps
    from seqgen.engines.tensor_ops import TensorOps

    return TensorOps


def without_gradients(function: F) -> F:
    """Return a function, or generator function, within which torch records no graph.

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
    """Return whether x is an array or a tensor."""
    return hasattr(x, "ndim")


def padded(x: Leaf, axis: int, size: int) -> Leaf:
    """Return x with zeros after it along an axis, so that it has that size."""
    if x.shape[axis] == size:
        return x
    ops, shape = ops_of(x), list(x.shape)
    shape[axis] = size - x.shape[axis]
    return ops.along(axis, x, ops.zeros(x, *shape))


def shifted(x: Leaf, before: int, after: int, value: int = 0) -> Leaf:
    """Return x (B, T, ...) with places of a value before and after it; before < 0 cuts some off."""
    ops, x = ops_of(x), x[:, max(0, -before) :]
    first, last = (
        ops.zeros(x, len(x), max(0, count), *x.shape[2:]) + value for count in (before, after)
    )
    return ops.along(1, first, x, last)


class ArrayOps:
    """NumPy's arrays."""

    tanh, exp, where, cos, sin = np.tanh, np.exp, np.where, np.cos, np.sin
    sqrt, expm1, log, at_least = np.sqrt, np.expm1, np.log, np.maximum

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
    def silu(x: np.ndarray) -> np.ndarray:
        """Return x sigmoid(x)."""
        y = ArrayOps.sigmoid(x)
        y *= x
        return y

    @staticmethod
    def gelu(x: np.ndarray) -> np.ndarray:
        """Return GPT-2's GELU, the tanh approximation of Hendrycks and Gimpel (2016)."""
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
        """Return x P(X <= x) for a standard normal X; number by number, so for few of them."""
        y = _erf(x * math.sqrt(0.5)).astype(x.dtype, copy=False)
        y += 1
        y *= x
        y *= 0.5
        return y

    @staticmethod
    def show(**values: np.ndarray) -> None:
        """Let whoever watches the equation see values (B, H) by their names; here nobody does."""

    @staticmethod
    def split(x: np.ndarray, *parts: int) -> list[np.ndarray]:
        """Cut x (..., N) into blocks whose widths are to one another as `parts`."""
        x = np.asanyarray(x)
        return [x[..., cut] for cut in _cuts(x.shape[-1], parts)]

    @staticmethod
    def gates(x: np.ndarray, *functions: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
        """Cut x (B, N) into as many equal blocks as there are functions, and apply each to its own.

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
        """Return the parts (B, N_1) ... side by side."""
        return np.concatenate(parts, -1)

    @staticmethod
    def along(axis: int, *parts: np.ndarray) -> np.ndarray:
        """Return the parts one after the other along an axis."""
        return np.concatenate(parts, axis)

    @staticmethod
    def stack(axis: int, *parts: np.ndarray) -> np.ndarray:
        """Return the parts beside one another along a new axis."""
        return np.stack(parts, axis)

    @staticmethod
    def expand(x: np.ndarray, *shape: int) -> np.ndarray:
        """Return x as if it were repeated to another shape."""
        return np.broadcast_to(x, shape)

    @staticmethod
    def cut(x: np.ndarray, *parts: int) -> list[np.ndarray]:
        """Cut x (N, ...) into blocks of rows whose numbers are to one another as `parts`."""
        return [x[cut] for cut in _cuts(len(x), parts)]

    @staticmethod
    def like(x: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return x in the type of another."""
        return x.astype(other.dtype, copy=False)

    @staticmethod
    def wide(x: np.ndarray) -> np.ndarray:
        """Return x in float32, or in its own type if that is wider."""
        return x

    @staticmethod
    def zeros(like: np.ndarray, *shape: int) -> np.ndarray:
        """Return zeros of the type of `like`."""
        return np.zeros(shape, like.dtype)

    @staticmethod
    def empty(like: np.ndarray, *shape: int) -> np.ndarray:
        """Return an array of the type of `like` that is yet to be filled.

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
        """Return whole numbers as int64."""
        return np.array(numbers, np.int64)

    @staticmethod
    def eye(like: np.ndarray, size: int) -> np.ndarray:
        """Return the identity (N, N) of the type of `like`."""
        return np.eye(size, dtype=like.dtype)

    @staticmethod
    def copy(x: np.ndarray) -> np.ndarray:
        """Return a copy that shares nothing with x."""
        return x.copy()

    @staticmethod
    def detach(x: np.ndarray) -> np.ndarray:
        """Return x without its graph, which arrays have none of."""
        return x

    @staticmethod
    def put(room: np.ndarray, rows: Sequence[int], x: np.ndarray) -> np.ndarray:
        """Return `room` (N, ...), which is used up, with x (M, ...) in some of its rows."""
        room[rows] = x
        return room

    @staticmethod
    def softmax(x: np.ndarray) -> np.ndarray:
        """Return exp(x) divided by its sum."""
        y = np.exp(x - np.maximum.reduce(x, -1, keepdims=True))
        y /= np.add.reduce(y, -1, keepdims=True)
        return y

    @staticmethod
    def log_softmax(x: np.ndarray) -> np.ndarray:
        """Return x less the logarithm of the sum of exp(x)."""
        return x - ArrayOps.logsumexp(x)

    @staticmethod
    def in_little_memory(function: Callable[..., np.ndarray], *inputs: Any) -> np.ndarray:
        """Return f(inputs): for the gradient it is done again, and nothing is kept."""
        return function(*inputs)

    @staticmethod
    def log_sigmoid(x: np.ndarray) -> np.ndarray:
        """Return the logarithm of the sigmoid of x."""
        return -np.logaddexp(0, -x)

    @staticmethod
    def log_of_sum(*terms: np.ndarray) -> np.ndarray:
        """Return log(exp(a) + exp(b) + ...) of terms of one shape, in float32 or wider."""
        return np.logaddexp.reduce(terms)

    @staticmethod
    def of(array: np.ndarray, like: np.ndarray) -> np.ndarray:
        """Return an array where `like` is."""
        return array

    @staticmethod
    def logsumexp(x: np.ndarray) -> np.ndarray:
        """Return log(sum(exp(x))) of the last axis, (..., 1)."""
        most = np.maximum.reduce(x, -1, keepdims=True)
        return most + np.log(np.add.reduce(np.exp(x - most), -1, keepdims=True))

    @staticmethod
    def pick(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return x[..., ids]: of x (..., V) the values at ids (..., N)."""
        return np.take_along_axis(x, ids, -1)

    @staticmethod
    def log_total(x: np.ndarray) -> np.ndarray:
        """Return log(sum(exp(x))) of the last axis, (...), of x that may be -inf all along it."""
        least = np.finfo(x.dtype).min
        most = np.maximum(np.maximum.reduce(x, -1, keepdims=True, initial=least), least)
        with np.errstate(divide="ignore"):
            return (most + np.log(np.add.reduce(np.exp(x - most), -1, keepdims=True)))[..., 0]

    @staticmethod
    def full_precision(like: np.ndarray) -> contextlib.AbstractContextManager:
        """Return a context without autocast where `like` is, of which arrays have none."""
        return contextlib.nullcontext()

    @staticmethod
    def blocks(x: np.ndarray, width: int, step: int) -> np.ndarray:
        """Return blocks (B, K, ..., W) of x (B, T, ...), one every so many places."""
        return np.lib.stride_tricks.sliding_window_view(x, width, 1)[:, ::step]

    @staticmethod
    def added_at(x: np.ndarray, places: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return x (..., V) with values (..., W) added to those at places (..., W)."""
        size = x.shape[-1]
        rows = np.arange(0, x.size, size)[:, None]
        flat = (rows + places.reshape(len(rows), -1)).ravel()
        sums = np.bincount(flat, values.ravel(), x.size).reshape(x.shape)
        return (x + sums).astype(x.dtype)

    @staticmethod
    def at_places(x: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return of x (S, L, E) what stands at places (S, M) along the second axis."""
        return np.take_along_axis(x, places[..., None], 1)

    @staticmethod
    def first_best(x: np.ndarray) -> np.ndarray:
        """Return the place of the largest value in the last axis; of equals the first."""
        return x.argmax(-1)

    @staticmethod
    def most(x: np.ndarray, axis: int) -> np.ndarray:
        """Return the largest values along an axis."""
        return np.maximum.reduce(x, axis)

    @staticmethod
    def count(like: np.ndarray, size: int) -> np.ndarray:
        """Return 0 to N - 1."""
        return np.arange(size)

    @staticmethod
    def floats(end: int, step: int = 1) -> np.ndarray:
        """Return 0, `step`, ... below `end`, as float32."""
        return np.arange(0, end, step, dtype=np.float32)

    @staticmethod
    def array(x: np.ndarray) -> np.ndarray:
        """Return x as an array."""
        return x

    @staticmethod
    def layer_norm(
        x: np.ndarray, gain: np.ndarray, bias: np.ndarray | None, eps: float = 1e-5
    ) -> np.ndarray:
        """Return (x - mean) / sqrt(variance + eps) * gain + bias."""
        x = np.asanyarray(x)
        reciprocal = 1 / x.shape[-1]
        y = x - reciprocal * np.add.reduce(x, -1, keepdims=True)
        y /= np.sqrt(reciprocal * np.add.reduce(y * y, -1, keepdims=True) + eps)
        y *= gain
        return y if bias is None else np.add(y, bias, out=y)

    @staticmethod
    def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float = 1e-5) -> np.ndarray:
        """Return x / sqrt(mean(x^2) + eps) * gain (Zhang and Sennrich 2019)."""
        scale = 1 / x.shape[-1] * np.add.reduce(x * x, -1, keepdims=True)  # (..., 1)
        scale += eps
        y = x / np.sqrt(scale, out=scale)
        y *= gain
        return y


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
