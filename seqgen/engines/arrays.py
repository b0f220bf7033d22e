"""Matrix products and attention for small batches in NumPy, with less overhead than torch."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from seqgen.engines.blocks import BlockMatrix
from seqgen.engines.native.library import library
from seqgen.engines.native.maps import NativeBlockMap, NativeMap
from seqgen.engines.weights import ArrayMap, Weights
from seqgen.mapped_tensors import forget_pages

Arrays = tuple[np.ndarray, ...]
# Builds the map W x + b of W (O, I) and b (O,), or of W alone.
MapBuilder = Callable[[np.ndarray, np.ndarray | None], ArrayMap]
# For more inputs than these, a table of what each comes to is slow to make and large.
MOST_KNOWN = 2048
# So few rows take less time one by one: OpenBLAS packs a matrix for any product of several.
FEW_ROWS = 3
# Weights of attention that are held at a time, in 16 MB of float32.
WEIGHTS_AT_ONCE = 1 << 22
ONE_ROW, SOME_ROWS = ("single", "threaded"), ("whole", "packed")
# A block of a matrix that several rows are multiplied with in turn, in numbers: half an L2 cache.
BLOCK = 1 << 15
_alone: ContextVar[bool] = ContextVar("each row alone", default=False)


@contextlib.contextmanager
def each_row_alone() -> Iterator[None]:
    """Context in which every batch row gets the same bits as if it were computed alone.

    The compiled library does so anyway. Of NumPy's products, a row's last bits may differ by how
    many rows are beside it; each for itself takes about 1.7 times as long.
    """
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def identity(x: np.ndarray, *noise: None) -> np.ndarray:
    """Return x: the identity, in place of dropout and normalisation."""
    return x


class Affine:
    """Linear map W x + b with fixed weights, by the fastest available product.

    How the product is asked for follows from `use_products`, or from `in_fewer_bits`, and the rows
    alone, so that a seed gives the same text each time. What each product needs is laid out when
    it is first used.

    Attributes:
        quantized: the precision that W is kept in, a key of `QUANTIZED`; "as stored" for that of
            its file; None for float32 or float64.
    """

    def __init__(
        self, weight: np.ndarray, bias: np.ndarray | None, quantized: str | None = None
    ) -> None:
        """Take W (O, I) and b (O,), or no b; and in which precision, if not as is set."""
        self._pair: tuple[np.ndarray, np.ndarray | None] | None = weight, bias
        own = "as stored" if isinstance(weight, BlockMatrix) else None
        self.quantized = own or quantized or _Settings.quantized
        self._products = _Settings.products
        self._made: dict[MapBuilder, ArrayMap] = {}

    @property
    def is_row_by_row(self) -> bool:
        """Whether the compiled library computes rows, each the same whatever is beside it."""
        return bool(self.quantized) or self._products == Products()

    def __call__(self, *parts: np.ndarray) -> np.ndarray:
        """Return W x + b (..., O), x being the `parts` (..., I_1) ... side by side."""
        x = parts[0] if len(parts) == 1 else np.concatenate(parts, -1)
        alone = _alone.get()
        if x.ndim == 2:
            return self._of_rows(x, alone)
        if alone and x.shape[-2] > 1:  # whole texts of several rows
            return np.stack([self._of_rows(text, False) for text in x])
        return self._of_rows(x.reshape(-1, x.shape[-1]), alone).reshape(*x.shape[:-1], -1)

    def _of_rows(self, x: np.ndarray, alone: bool) -> np.ndarray:
        """Compute W x + b (B, O) of rows (B, I), each independent of the batch if `alone`."""
        one = len(x) == 1 or alone
        build = MAP_BUILDERS[self.quantized or (self._products.one if one else self._products.some)]
        pair, made = self._pair, self._made.get(build)  # in this order: another thread may make it
        if made is None:
            made = self._made[build] = build(*pair)
            self._let_go(pair[0])
        if len(x) == 1 or not alone or isinstance(made, NativeMap):
            return made(x)
        if isinstance(made, Product):
            return made.of_each(x)
        return np.concatenate([made(row) for row in x[:, None]])

    def _let_go(self, weight: np.ndarray) -> None:
        """Free the original W once the packed copies serve any number of rows."""
        names = [self.quantized] if self.quantized else [self._products.one, self._products.some]
        if all(MAP_BUILDERS[name] in self._made for name in names):
            self._pair = None
            forget_pages(weight)


class Product:
    """W x + b (B, O) of x (B, I) in NumPy, with a contiguous W^T."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray | None) -> None:
        self.transposed, self.bias = np.ascontiguousarray(weight.T), bias  # (I, O)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if 1 < len(x) <= FEW_ROWS:
            y = np.concatenate([row @ self.transposed for row in x[:, None]])
        else:
            y = x @ self.transposed
        return y if self.bias is None else np.add(y, self.bias, out=y)

    @cached_property
    def _blocks(self) -> np.ndarray | None:
        """W^T in blocks of columns (N, I, w); None if blocks round differently from the whole.

        BLAS libraries take the first and last columns of some matrices in other ways than the
        rest, so that this is tried.
        """
        inputs, outputs = self.transposed.shape
        width = max(16, BLOCK // inputs // 16 * 16)
        width = next((w for w in range(width, 15, -16) if outputs % w == 0), outputs)
        if width == outputs:
            return None
        blocks = np.ascontiguousarray(self.transposed.reshape(inputs, -1, width).swapaxes(0, 1))
        probe = np.cos(np.arange(inputs))[None].astype(blocks.dtype)
        alike = np.matmul(probe[None], blocks)[:, 0].ravel() == (probe @ self.transposed)[0]
        return blocks if alike.all() else None

    def of_each(self, x: np.ndarray) -> np.ndarray:
        """Compute each row of x bit for bit as if it were alone."""
        blocks = self._blocks
        if blocks is None:
            y = np.matmul(x[:, None], self.transposed)[:, 0]
        else:
            y = np.empty((len(x), self.transposed.shape[1]), x.dtype)
            by_block = y.reshape(len(x), len(blocks), -1).swapaxes(0, 1)[:, :, None]
            np.matmul(x[None, :, None], blocks[:, None], out=by_block)  # (N, B, 1, w)
        return y if self.bias is None else np.add(y, self.bias, out=y)


def linear_map(weights: Weights) -> ArrayMap | None:
    """Build W x + b of a linear layer; W x if no b is stored, None if no W is."""
    if "weight" not in weights:
        return None
    return weights.replacement or Affine(weights.weight, weights.get("bias"))


def multiply(x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Multiply x (B, I) by a fixed matrix (I, O)."""
    return np.matmul(x[:, None], matrix)[:, 0] if _alone.get() else x @ matrix


def by_one_thread(weight: np.ndarray, bias: np.ndarray | None) -> ArrayMap:
    """Build W x + b on one thread: by the compiled library if available, else NumPy."""
    native = weight.dtype == np.float32 and library() is not None
    return (NativeMap if native else Product)(weight, bias)


def as_stored(weight: BlockMatrix, bias: np.ndarray | None) -> ArrayMap:
    """Build W x + b over the blocks of a file, or in float32 without the compiled library."""
    if library() is None:
        return Product(np.asarray(weight), bias)
    return NativeBlockMap(weight, bias)


# By name; `tensor_products.py` adds those that need torch.
MAP_BUILDERS: dict[str, MapBuilder] = {
    "single": by_one_thread,
    "whole": by_one_thread,
    "as stored": as_stored,
}


@dataclass(frozen=True)
class Products:
    """Implementations of W x + b for one row and for several. The fastest depends on the CPU.

    Attributes:
        one: for one row, by one thread ("single") or by all ("threaded", torch).
        some: for several, by one thread ("whole") or over oneDNN's packed weights ("packed",
            float32 only), which recurrent layers are then trained with, too
            (`engines/fast_layers.py`).

    Raises:
        ValueError: there is no such product.
    """

    one: Literal["single", "threaded"] = "single"
    some: Literal["whole", "packed"] = "whole"

    def __post_init__(self) -> None:
        if self.one not in ONE_ROW or self.some not in SOME_ROWS:
            raise ValueError(f"there are no products {self.one!r} and {self.some!r}")


class _Settings:
    """Defaults for models built from now on: product implementations and quantization."""

    products = Products()
    quantized: str | None = None


@contextlib.contextmanager
def in_fewer_bits(quantized: str | None) -> Iterator[None]:
    """Context in which new linear maps are quantized to a key of `quantized.QUANTIZED`, or not."""
    before, _Settings.quantized = _Settings.quantized, quantized
    try:
        yield
    finally:
        _Settings.quantized = before


def use_products(products: Products) -> None:
    """Set the product implementations for models built from now on."""
    _Settings.products = products


def products_in_use() -> Products:
    """Return the product implementations for models built now."""
    return _Settings.products


def attend(
    q: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    seen: np.ndarray | None = None,
    softcap: float | None = None,
) -> np.ndarray:
    """Compute attention softmax(Q K^T / sqrt(D)) V, (B, heads, T, D).

    Args:
        q: (B, heads, T, D).
        keys: (B, heads, n, D), or fewer heads, each read by several of the queries'.
        values: as keys.
        seen: which keys a query sees, (B, 1, T, n) or what fits that shape; None where each sees
            all.
        softcap: squashes scores x to softcap tanh(x / softcap); None leaves them.
    """
    rows, heads, length, width = q.shape
    of_keys, count = keys.shape[1:3]
    grouped = q.reshape(rows, of_keys, -1, width)  # (B, heads of keys, G T, D)
    weights = grouped @ keys.swapaxes(2, 3)  # (B, heads of keys, G T, n)
    weights *= 1 / math.sqrt(width)
    if softcap is not None:
        weights = softcap * np.tanh(weights / softcap)
    if seen is not None:
        by_head = weights.reshape(rows, heads, length, count)
        np.copyto(by_head, -np.inf, where=~seen)
    weights -= np.maximum.reduce(weights, -1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= np.add.reduce(weights, -1, keepdims=True)
    return (weights @ values).reshape(q.shape)


def attend_to_past(
    q: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    seen: np.ndarray | None,
    softcap: float | None = None,
) -> np.ndarray:
    """Compute causal attention of the last T of n positions, in chunks of queries.

    Many queries are taken in pieces, so that their weights take bounded memory, and what comes
    after a piece is not computed.
    """
    rows, heads, length, _ = q.shape
    count = keys.shape[2]
    if seen is not None and len(seen) == rows > length == 1 and _alone.get():
        return attend_each(q, keys, values, seen, softcap)
    size = max(1, WEIGHTS_AT_ONCE // (rows * heads * count))
    if length <= size:
        return attend(q, keys, values, seen, softcap)
    pieces = []
    for begin in range(0, length, size):
        end = min(begin + size, length)
        past = count - length + end
        of_piece = q[:, :, begin:end], keys[:, :, :past], values[:, :, :past]
        pieces.append(attend(*of_piece, seen[:, :, begin:end, :past], softcap))
    return np.concatenate(pieces, 2)


def attend_to_all(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, there: np.ndarray | None
) -> np.ndarray:
    """Compute attention to all keys, or those that the mask `there` (B, n) marks.

    Many queries are taken in pieces, so that their weights take bounded memory.
    """
    size = max(1, WEIGHTS_AT_ONCE // (q.shape[0] * q.shape[1] * keys.shape[2]))
    seen = None if there is None else there[:, None, None]
    pieces = [
        attend(q[:, :, begin : begin + size], keys, values, seen)
        for begin in range(0, q.shape[2], size)
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, 2)


def query_by_query(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, there: np.ndarray | None
) -> np.ndarray:
    """Compute `attend_to_all`, with each query's bits those of a query alone without padding."""
    read = np.empty_like(q)
    for row, query in np.ndindex(q.shape[0], q.shape[2]):
        one, count = slice(row, row + 1), keys.shape[2] if there is None else there[row].sum()
        pair = keys[one, :, :count], values[one, :, :count]
        read[one, :, query : query + 1] = attend(q[one, :, query : query + 1], *pair)
    return read


def attend_each(
    q: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    seen: np.ndarray | None,
    softcap: float | None = None,
) -> np.ndarray:
    """Compute attention of one query per row, bit for bit as for each row alone.

    Args:
        q: (B, heads, 1, D).
        keys: (B, heads, n, D), or fewer heads.
        values: as keys.
        seen: (B, 1, 1, n), of which each row has the last ones; None for all.
        softcap: see `attend`.
    """
    if seen is None:
        return attend(q, keys, values, softcap=softcap)
    starts = seen.argmax(-1).ravel()
    read = np.empty_like(q)
    for start in np.unique(starts).tolist():
        rows = np.flatnonzero(starts == start)
        if len(rows) == 1:  # which is no copy
            rows = slice(rows[0], rows[0] + 1)
        pair = (x[rows, :, start:] for x in (keys, values))
        read[rows] = attend(q[rows], *pair, softcap=softcap)
    return read


def input_map(weight: np.ndarray, bias: np.ndarray, inputs: np.ndarray | None) -> ArrayMap:
    """Build W x + b as a function of x (B, I), or of ids (B,) into vectors `inputs` (V, I)."""
    affine = Affine(weight, bias)
    if inputs is None:
        return affine
    if len(inputs) <= MOST_KNOWN:
        return _rows_of(inputs @ weight.T + bias)
    return lambda ids: affine(inputs[ids])


def input_map_of_ids(weight: np.ndarray, bias: np.ndarray) -> ArrayMap:
    """Build W x + b for one-hot x, as a function of their ids (B,)."""
    return _rows_of(weight.T + bias)


def _rows_of(table: np.ndarray) -> ArrayMap:
    """Build a function that copies a table's rows by ids (B,)."""
    return lambda ids: table[ids[0] : ids[0] + 1].copy() if len(ids) == 1 else table[ids]
