"""One token of a few rows over NumPy arrays, whose calls cost a fraction of torch's."""

from __future__ import annotations

import contextlib
import functools
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.models.engines.quantized import REDUCED

Arrays = tuple[np.ndarray, ...]
# One step of a layer: its input (B, E), or the ids (B,) of its inputs, and the past state's
# arrays (B, H), to the next ones; h is first.
ArrayStep = Callable[[np.ndarray, Arrays], Arrays]
ArrayMap = Callable[[np.ndarray], np.ndarray]
# Up to this many rows, attention in NumPy takes less time than calling torch's kernel; by one
# thread it does so for any number, by more the kernel divides its work among them.
FEW_QUERIES = 3
# For more inputs than these, a table of what each comes to is slow to make and large.
MOST_KNOWN = 2048


class Affine:
    """W x + b, for weights that do not change.

    How the product is asked for follows from `use_products`, or from `in_fewer_bits`, and the rows
    alone, so that a seed gives the same text each time. What each way needs is laid out when it is
    first taken.

    Attributes:
        reduced: the precision that W is kept in, a key of `REDUCED`; None for its own.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, reduced: str | None = None) -> None:
        """Take W (O, I) and b (O,), or no b; and in which precision, if not as is set."""
        weight, bias = weight.detach(), None if bias is None else bias.detach()
        products, self.reduced = _Settings.products, reduced or _Settings.reduced
        self._one, self._some = ONE_ROW[products.one], SOME_ROWS[products.some]
        if self.reduced is not None:
            self._one = self._some = REDUCED[self.reduced]
        elif self._some is _Packed and not (weight.dtype == torch.float32 and has_packed()):
            self._some = _Whole
        self._product = functools.cache(lambda kind: kind(weight, bias))

    def __call__(self, *parts: np.ndarray) -> np.ndarray:
        """Return W x + b (B, O), x being the `parts` (B, I_1) ... side by side."""
        x = parts[0] if len(parts) == 1 else np.concatenate(parts, 1)
        return self._product(self._one if len(x) == 1 else self._some)(x)


class _Threaded:
    """W x + b (1, O) of x (1, I), by all threads: each core's cache then holds its part of W."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, None if bias is None else bias.numpy()[None]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        y = torch.mv(self.weight, torch.from_numpy(x)[0]).numpy()[None]
        return _plus(y, self.bias)


class _Single:
    """W x + b (1, O) of x (1, I) by one thread: waking a second may cost more than it saves."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.transposed = weight.T.contiguous().numpy()  # (I, O)
        self.bias = None if bias is None else bias.numpy()[None]

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
    """W x + b (B, O) of x (B, I) by oneDNN, W being laid out in the blocks its kernels read."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = torch.ops.mkldnn._reorder_linear_weight(weight), bias
        self.linear = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.linear(torch.from_numpy(x), self.weight, self.bias, "none", [], "").numpy()


ONE_ROW = {"single": _Single, "threaded": _Threaded}
SOME_ROWS = {"whole": _Whole, "packed": _Packed}


@dataclass(frozen=True)
class Products:
    """How W x + b is asked for. Which way is fastest differs by processor, and so does rounding.

    Attributes:
        one: for one row, by one thread or by all.
        some: for several, by torch's product or over oneDNN's packed weights (float32 only), which
            recurrent layers are then trained with, too (`models/engines/onednn_linear.py`).

    Raises:
        ValueError: there is no such way.
    """

    one: Literal["single", "threaded"] = "single"
    some: Literal["whole", "packed"] = "whole"

    def __post_init__(self) -> None:
        if self.one not in ONE_ROW or self.some not in SOME_ROWS:
            raise ValueError(f"there are no products {self.one!r} and {self.some!r}")


class _Settings:
    """What models made from now on use."""

    products = Products()
    reduced: str | None = None


@contextlib.contextmanager
def in_fewer_bits(reduced: str | None) -> Iterator[None]:
    """Have what is made within keep its matrices so: a key of `REDUCED`, or None."""
    before, _Settings.reduced = _Settings.reduced, reduced
    try:
        yield
    finally:
        _Settings.reduced = before


def use_products(products: Products) -> None:
    """Have models that are made from now on ask for their products so."""
    _Settings.products = products


def products_in_use() -> Products:
    """Return how models that are made now ask for their products."""
    return _Settings.products


def affine_of(linear: nn.Linear) -> ArrayMap:
    """Return a linear layer over arrays: in fewer bits if it is kept so."""
    return getattr(linear, "reduced", None) or Affine(linear.weight, linear.bias)


def asks_onednn() -> bool:
    """Return whether products of several rows are asked of oneDNN."""
    return _Settings.products.some == "packed" and has_packed()


# What is measured: the product for the gates of 256 units with inputs of 256; the number of rows;
# for how many seconds, and the least number of calls.
MEASURED_SHAPE, MEASURED_ROWS, MEASURED_SECONDS, LEAST_CALLS = (1024, 512), 8, 0.02, 3
# The default is replaced only by a way at least this many times as fast.
LEAST_GAIN = 1.1


def fastest_products() -> Products:
    """Measure which ways are fastest here, in some milliseconds."""
    weight, bias = torch.ones(MEASURED_SHAPE), torch.ones(MEASURED_SHAPE[0])
    some = SOME_ROWS if has_packed() else {"whole": _Whole}
    with torch.inference_mode():
        return Products(
            one=_fastest(ONE_ROW, weight, bias, rows=1),
            some=_fastest(some, weight, bias, rows=MEASURED_ROWS),
        )


def _fastest(ways: dict[str, Any], weight: Tensor, bias: Tensor, rows: int) -> str:
    """Return the name of the fastest way; the first one's, unless another is much faster."""
    x = np.ones((rows, weight.shape[1]), dtype=np.float32)
    functions = {name: way(weight, bias) for name, way in ways.items()}
    seconds = dict.fromkeys(functions, math.inf)
    until, calls = time.perf_counter() + MEASURED_SECONDS, 0
    while calls < LEAST_CALLS or time.perf_counter() < until:
        for name, way in functions.items():  # in turn; the fastest call is the least disturbed one
            began = time.perf_counter()
            way(x)
            seconds[name] = min(seconds[name], time.perf_counter() - began)
        calls += 1
    default, best = next(iter(seconds)), min(seconds, key=seconds.__getitem__)
    return best if seconds[default] >= LEAST_GAIN * seconds[best] else default


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
        keys: (B, heads, n, D), or fewer heads, each read by several of the query's.
        values: as keys.
        there: (B, n), which of them a row has; None where each has all.
    """
    shape = q.shape
    q = q.reshape(*keys.shape[:2], -1, shape[-1])  # (B, heads of keys, G, D)
    if len(q) > FEW_QUERIES and torch.get_num_threads() > 1:
        mask = None if there is None else torch.from_numpy(there)[:, None, None]
        tensors = map(torch.from_numpy, (q, keys, values))
        read = F.scaled_dot_product_attention(*tensors, attn_mask=mask).numpy()
    else:
        read = attend_grouped(q, keys, values, there)
    return read.reshape(shape)


def attend_each(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, starts: Sequence[int]
) -> np.ndarray:
    """Return what `attend` does, bit for bit what it would be for each row alone.

    Args:
        q: (B, heads, D).
        keys: (B, heads, n, D), or fewer heads.
        values: as keys.
        starts: for each row the first of the n keys that it has.
    """
    shape, starts = q.shape, np.asarray(starts)
    q = q.reshape(*keys.shape[:2], -1, shape[-1])
    if starts.min() == starts.max():
        some = slice(int(starts[0]), None)
        return attend_grouped(q, keys[:, :, some], values[:, :, some], None).reshape(shape)
    read = np.empty_like(q)
    for start in np.unique(starts).tolist():
        rows = np.flatnonzero(starts == start)
        past = (x[rows, :, start:] for x in (keys, values))
        read[rows] = attend_grouped(q[rows], *past, None)
    return read.reshape(shape)


def attend_grouped(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, there: np.ndarray | None
) -> np.ndarray:
    """Return softmax(Q K^T / sqrt(D)) V (S, heads, G, D) for some queries a row.

    Args:
        q: (S, heads, G, D).
        keys: (S, heads, n, D).
        values: as keys.
        there: (S, n), which of them a row has; None where each has all.
    """
    scores = q @ keys.swapaxes(2, 3)  # (S, heads, G, n)
    scores *= 1 / math.sqrt(q.shape[-1])
    if there is not None:
        np.copyto(scores, -np.inf, where=~there[:, None, None])
    scores -= np.maximum.reduce(scores, -1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= np.add.reduce(scores, -1, keepdims=True)
    return scores @ values


def input_map(weight: Tensor, bias: Tensor, inputs: Tensor | None) -> ArrayMap:
    """Return W x + b as a function of x (B, I), or of the ids (B,) of vectors `inputs` (V, I)."""
    affine = Affine(weight, bias)
    if inputs is None:
        return affine
    if inputs.is_sparse or len(inputs) <= MOST_KNOWN:
        return (inputs @ weight.T + bias).detach().numpy().__getitem__
    vectors = inputs.detach().numpy()
    return lambda ids: affine(vectors[ids])
