"""Matrices as files have them: floating-point rows, or blocks of few bits of GGUF files.

A block of 32 or 256 weights has whole numbers q, scales s and perhaps minima m, by groups; it
stands for s q - m. The layouts are those of ggml's `block_q4_0` and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqgen.engines.native.library import library

# Whole numbers (N, groups, ...), their scales and minima (N, groups), or no minima.
Unpacked = tuple[np.ndarray, np.ndarray, np.ndarray | None]
# Weights that are dequantized at a time.
WEIGHTS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class BlockType:
    """Storage format of quantized weights: rows of blocks, as in GGUF files.

    Attributes:
        size: weights of a block.
        width: bytes of a block.
        unpack: takes blocks (N, width) to what they contain; None for floating-point numbers.
    """

    size: int
    width: int
    unpack: Callable[[np.ndarray], Unpacked] | None = None


def _halves(raw: np.ndarray) -> np.ndarray:
    """Read float16 numbers (N, n) from bytes (N, 2 n)."""
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


def _bits(raw: np.ndarray, width: int, shifts: Sequence[int]) -> np.ndarray:
    """Take `width` bits of bytes (N, ..., n) at each shift, (N, ..., shifts, n)."""
    places = np.array(shifts, np.uint8)[:, None]
    return raw[..., None, :] >> places & np.uint8((1 << width) - 1)


def _eight_bits(raw: np.ndarray) -> Unpacked:
    return raw[:, None, 2:].view(np.int8), _halves(raw[:, :2]), None


def _four_or_five_bits(raw: np.ndarray, minimum: bool, fifth: bool) -> Unpacked:
    head = 4 if minimum else 2
    scales = _halves(raw[:, :head])
    q = _bits(raw[:, head + 4 * fifth :], 4, (0, 4)).reshape(len(raw), 1, 32).astype(np.int8)
    if fifth:
        q |= np.unpackbits(raw[:, None, head : head + 4], -1, bitorder="little").view(np.int8) << 4
    if minimum:
        return q, scales[:, :1], -scales[:, 1:]
    return q - (16 if fifth else 8), scales, None


def _six_bit_scales(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Read eight scales and eight minima in 6 bits of twelve bytes (N, 12)."""
    first, second, mixed = raw[:, :4], raw[:, 4:8], raw[:, 8:]
    scales = np.concatenate([first & 63, (mixed & 15) | first >> 6 << 4], 1)
    return scales, np.concatenate([second & 63, mixed >> 4 | second >> 6 << 4], 1)


def _k_with_minima(raw: np.ndarray, fifth: bool) -> Unpacked:
    scales, minima = _six_bit_scales(raw[:, 4:16])
    low = raw[:, 48 if fifth else 16 :].reshape(-1, 4, 32)
    q = _bits(low, 4, (0, 4)).reshape(-1, 8, 32)
    if fifth:
        q = q | _bits(raw[:, 16:48], 1, range(8)) << 4
    both = _halves(raw[:, :4])
    return q, both[:, :1] * scales, both[:, 1:] * minima


def _two_bits(raw: np.ndarray) -> Unpacked:
    q = _bits(raw[:, 16:80].reshape(-1, 2, 32), 2, (0, 2, 4, 6)).reshape(-1, 16, 16)
    both = _halves(raw[:, 80:])
    return q, both[:, :1] * (raw[:, :16] & 15), both[:, 1:] * (raw[:, :16] >> 4)


def _three_bits(raw: np.ndarray) -> Unpacked:
    low = _bits(raw[:, 32:96].reshape(-1, 2, 32), 2, (0, 2, 4, 6)).reshape(-1, 8, 32)
    q = (low | _bits(raw[:, :32], 1, range(8)) << 2).astype(np.int8) - 4
    four = _bits(raw[:, 96:104], 4, (0, 4)).reshape(-1, 16)
    two = _bits(raw[:, 104:108], 2, (0, 2, 4, 6)).reshape(-1, 16)
    scales = (four | two << 4).astype(np.int8) - 32
    return q.reshape(-1, 16, 16), _halves(raw[:, 108:]) * scales, None


def _six_bits(raw: np.ndarray) -> Unpacked:
    low = _bits(raw[:, :128].reshape(-1, 2, 64), 4, (0, 4)).reshape(-1, 8, 32)
    high = _bits(raw[:, 128:192].reshape(-1, 2, 32), 2, (0, 2, 4, 6)).reshape(-1, 8, 32)
    q = (low | high << 4).astype(np.int8) - 32
    scales = _halves(raw[:, 208:]) * np.ascontiguousarray(raw[:, 192:208]).view(np.int8)
    return q.reshape(-1, 16, 16), scales, None


def _small(minimum: bool, fifth: bool) -> Callable[[np.ndarray], Unpacked]:
    return lambda raw: _four_or_five_bits(raw, minimum, fifth)


# In the order of the library's `kernels.c`, whose first type is that of packed matrices.
TYPES = {
    "F32": BlockType(1, 4),
    "F16": BlockType(1, 2),
    "BF16": BlockType(1, 2),
    "Q4_0": BlockType(32, 18, _small(minimum=False, fifth=False)),
    "Q4_1": BlockType(32, 20, _small(minimum=True, fifth=False)),
    "Q5_0": BlockType(32, 22, _small(minimum=False, fifth=True)),
    "Q5_1": BlockType(32, 24, _small(minimum=True, fifth=True)),
    "Q8_0": BlockType(32, 34, _eight_bits),
    "Q2_K": BlockType(256, 84, _two_bits),
    "Q3_K": BlockType(256, 110, _three_bits),
    "Q4_K": BlockType(256, 144, lambda raw: _k_with_minima(raw, fifth=False)),
    "Q5_K": BlockType(256, 176, lambda raw: _k_with_minima(raw, fifth=True)),
    "Q6_K": BlockType(256, 210, _six_bits),
}
# Of floating-point numbers, what NumPy and torch call them.
NUMBERS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
CODES = {name: code for code, name in enumerate(TYPES, 1)}


def dequantize(raw: np.ndarray, name: str) -> np.ndarray:
    """Convert bytes (rows, bytes) of a type to float32 (rows, I)."""
    kind = TYPES[name]
    if name == "BF16":
        return (np.ascontiguousarray(raw).view("<u2").astype(np.uint32) << 16).view(np.float32)
    if kind.unpack is None:
        return np.ascontiguousarray(raw).view({"F32": "<f4", "F16": "<f2"}[name]).astype("f4")
    if (native := library()) is not None:
        raw, blocks = np.ascontiguousarray(raw), raw.size // kind.width
        values = np.empty((len(raw), blocks * kind.size // max(1, len(raw))), "f4")
        native.dequantize(CODES[name], blocks, raw.ctypes.data, values.ctypes.data)
        return values
    q, scales, minima = kind.unpack(raw.reshape(-1, kind.width))
    values = q * scales[..., None]
    if minima is not None:
        values -= minima[..., None]
    return values.reshape(len(raw), -1)


@dataclass(frozen=True)
class StoredRows:
    """Neighbouring rows of a matrix that are stored in one type.

    Attributes:
        kind: a key of `TYPES`.
        raw: their bytes, (rows, bytes of a row).
    """

    kind: str
    raw: np.ndarray


class BlockMatrix:
    """Matrix W (O, I) in the types of its file; NumPy takes it for one in float32.

    Rows are dequantized where they are asked for: an index gives arrays, a slice another matrix.

    Args:
        parts: groups of rows, from the first on.
    """

    dtype, ndim = np.dtype(np.float32), 2

    def __init__(self, parts: Iterable[StoredRows]) -> None:
        self.parts = [part for part in parts if len(part.raw)]
        first = self.parts[0]
        inputs = first.raw.shape[1] // TYPES[first.kind].width * TYPES[first.kind].size
        self.shape = sum(len(part.raw) for part in self.parts), inputs

    @classmethod
    def read(cls, raw: np.ndarray, kinds: str) -> BlockMatrix:
        """Read a matrix from bytes, and a description such as "Q4_K 768, Q6_K 192".

        Raises:
            ValueError: they do not fit each other.
        """
        return cls(_rows(raw, kinds))

    @property
    def kinds(self) -> str:
        """Description of the rows, for `read`."""
        each = itertools.groupby(self.parts, lambda part: part.kind)
        return ", ".join(f"{kind} {sum(len(part.raw) for part in parts)}" for kind, parts in each)

    @property
    def number_type(self) -> str:
        """Name of the type of all its numbers; "uint8" for blocks or several types."""
        kinds = {part.kind for part in self.parts}
        return NUMBERS.get(kinds.pop(), "uint8") if len(kinds) == 1 else "uint8"

    @property
    def nbytes(self) -> int:
        """Size in the file."""
        return sum(part.raw.nbytes for part in self.parts)

    def pieces(self) -> list[memoryview]:
        """Return the bytes that `read` takes, in pieces."""
        return [np.ascontiguousarray(part.raw).reshape(-1).data for part in self.parts]

    def __len__(self) -> int:
        return self.shape[0]

    def __deepcopy__(self, memo: Any) -> BlockMatrix:
        return self  # never changed

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return self if (start, stop) == (0, len(self)) else BlockMatrix(self._cut(start, stop))
        ids = np.asarray(index)
        rows = np.empty((ids.size, self.shape[1]), np.float32)
        flat, begin = ids.ravel(), 0
        for part in self.parts:
            here = (flat >= begin) & (flat < begin + len(part.raw))
            if here.any():
                rows[here] = dequantize(part.raw[flat[here] - begin], part.kind)
            begin += len(part.raw)
        return rows.reshape(*ids.shape, -1)

    def _cut(self, start: int, stop: int) -> Iterable[StoredRows]:
        begin = 0
        for part in self.parts:
            yield StoredRows(part.kind, part.raw[max(0, start - begin) : max(0, stop - begin)])
            begin += len(part.raw)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = self.fill(np.empty(self.shape, np.float32))
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def fill(self, whole: np.ndarray) -> np.ndarray:
        """Write its numbers into an array in float32 of its shape, and return it."""
        at, step = 0, max(1, WEIGHTS_AT_ONCE // self.shape[1])
        for part in self.parts:
            for begin in range(0, len(part.raw), step):
                some = dequantize(part.raw[begin : begin + step], part.kind)
                whole[at : at + len(some)] = some
                at += len(some)
        return whole


def _rows(raw: np.ndarray, kinds: str) -> Iterable[StoredRows]:
    """Yield groups of rows; see `BlockMatrix.read`."""
    shown = str(kinds)[:60]
    try:
        each = [one.split() for one in kinds.split(",")]
        counts = [(kind, int(count), TYPES[kind]) for kind, count in each]
    except (AttributeError, KeyError, ValueError):
        raise ValueError(f"there are no rows of type {shown}") from None
    if min(count for _, count, _ in counts) < 1:
        raise ValueError(f"there are no rows of type {shown}")
    weights = raw.size / sum(count * kind.width / kind.size for _, count, kind in counts)
    if weights < 1 or any(weights % kind.size for *_, kind in counts):
        raise ValueError(f"{raw.size:,} bytes are not rows of type {shown}")
    flat, begin = raw.reshape(-1), 0
    for name, count, kind in counts:
        width = int(weights) // kind.size * kind.width
        yield StoredRows(name, flat[begin : begin + count * width].reshape(count, width))
        begin += count * width
