"""Linear maps that call the compiled library."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
from typing import ClassVar

import numpy as np

from seqgen.engines.blocks import CODES, NUMBERS, BlockMatrix
from seqgen.engines.native.library import library

# Inputs that whole numbers take at a time; and those of x that share a scale, of int4's W too.
GROUP, BLOCK = 4, 32
# Bytes of memory that matrices share, and of a line of the cache.
SHARED, LINE = 1 << 25, 64
_block, _lock = np.empty(0, np.uint8), threading.Lock()


class _Map(ctypes.Structure):
    """Ctypes struct `map` of the library."""

    _fields_: ClassVar = [
        *((name, ctypes.c_int64) for name in ("outputs", "inputs")),
        *((name, ctypes.c_void_p) for name in ("packed", "bias", "scales", "of_blocks")),
        *(("type", ctypes.c_int64), ("next", ctypes.c_void_p)),
    ]


class NativeMap:
    """Linear map W x + b (B, O) in float32 by the compiled library, for fixed weights.

    Args:
        weight: W (O, I).
        bias: b (O,) or none.

    Attributes:
        outputs: O.
        inputs: I.
        address: of `map` of the library.
        scratch: how many bytes the library needs on the way, for each row.
    """

    scratch = 0

    def __init__(self, weight: np.ndarray, bias: np.ndarray | None) -> None:
        panel = 2 * library().lanes()
        panels = _in_panels(weight, panel)  # (O / panel, panel, I)
        packed = panels.swapaxes(1, 2)
        self._keep(weight.shape, packed, _filled(bias, panel, len(weight)))

    def _keep(
        self,
        shape: tuple[int, int],
        packed: np.ndarray,
        bias: np.ndarray,
        scales: np.ndarray | None = None,
        of_blocks: np.ndarray | None = None,
    ) -> None:
        self.outputs, self.inputs = shape
        self._product = library().product
        arrays = _in_large_pages(packed), bias, scales, of_blocks
        fields = _Map(*shape, *(None if x is None else x.ctypes.data for x in arrays))
        self._kept, self.address = (arrays, fields), ctypes.addressof(fields)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return W x + b (B, O)."""
        if (recording := getattr(x, "recording", None)) is not None:  # see `Recorded`
            return recording.product(self, x)
        if x.dtype != np.float32 or x.strides[1] != 4 or x.strides[0] % 4:
            x = np.ascontiguousarray(x, np.float32)
        rows, inputs = x.shape
        if inputs != self.inputs:  # the library would read what lies behind
            raise ValueError(f"a map of {self.inputs} inputs is given {inputs}")
        y = np.empty((rows, self.outputs), np.float32)
        scratch = np.empty(rows * self.scratch // 4 + 1, np.float32)
        self._product(
            self.address,
            rows,
            x.ctypes.data,
            x.strides[0] // 4,
            y.ctypes.data,
            self.outputs,
            scratch.ctypes.data,
        )
        return y


class NativeInt8Map(NativeMap):
    """Linear map with int8 weights by the compiled library; see `quantized.Int8Map`.

    Args:
        whole: W (O, I), int8 from -127 to 127.
        scales: of each row of W, (O,).
        bias: b (O,) or none.
    """

    def __init__(self, whole: np.ndarray, scales: np.ndarray, bias: np.ndarray | None) -> None:
        (outputs, inputs), panel = whole.shape, library().lanes()
        wide = np.pad(whole, ((0, 0), (0, -inputs % BLOCK))).view(np.uint8) + library().added()
        panels = _in_panels(wide, panel).reshape(-1, panel, wide.shape[1] // GROUP, GROUP)
        packed = panels.swapaxes(1, 2)  # (O / panel, I / 4, panel, 4)
        vectors = (_filled(x, panel, outputs) for x in (bias, scales))
        self._keep(whole.shape, packed, *vectors)

    @property
    def scratch(self) -> int:
        # Of a block a scale, a sum, and the row in 16 bits.
        return -(-self.inputs // BLOCK) * (8 + 2 * BLOCK)


class NativeInt4Map(NativeMap):
    """Linear map with int4 weights by the compiled library; see `quantized.Int4Map`.

    Args:
        whole: W (O, I), from -8 to 7.
        scales: of each `BLOCK` columns of W, (O, I / BLOCK) and rounded up; numbers of bf16.
        bias: b (O,) or none.
    """

    def __init__(self, whole: np.ndarray, scales: np.ndarray, bias: np.ndarray | None) -> None:
        (outputs, inputs), panel = whole.shape, library().lanes()
        wide = np.pad(whole + 8, ((0, 0), (0, -inputs % BLOCK))).astype(np.uint8)
        halves = _in_panels(wide, panel).reshape(-1, panel, wide.shape[1] // 8, 2, GROUP)
        both = halves[..., 0, :] | halves[..., 1, :] << 4  # (O / panel, panel, I / 8, 4)
        packed = both.swapaxes(1, 2)
        upper = (scales.view(np.uint32) >> 16).astype(np.uint16)
        of_blocks = np.ascontiguousarray(_in_panels(upper, panel).swapaxes(1, 2))
        self._keep(whole.shape, packed, _filled(bias, panel, outputs), of_blocks=of_blocks)

    @property
    def scratch(self) -> int:
        return -(-self.inputs // BLOCK) * (8 + BLOCK)  # of a block a scale, a sum, and the row


class NativeBlockMap(NativeMap):
    """Linear map over the rows of a file, as they are there; see `blocks.BlockMatrix`.

    Args:
        weight: W (O, I).
        bias: b (O,) or none.
    """

    def __init__(self, weight: BlockMatrix, bias: np.ndarray | None) -> None:
        self.outputs, self.inputs = weight.shape
        self._product = library().product
        bias, end = _filled(bias, 1, self.outputs), self.outputs
        self._kept, self.address = [bias], None
        for part in reversed(weight.parts):
            raw, end = np.ascontiguousarray(part.raw), end - len(part.raw)
            begin = bias[end:].ctypes.data
            about = _Map(len(raw), self.inputs, raw.ctypes.data, begin, None, None)
            about.type, about.next = CODES[part.kind], self.address
            self._kept += raw, about
            self.address = ctypes.addressof(about)
        # Of a block of x a scale, two sums, and twice 16 bits a number.
        rounds = any(part.kind not in NUMBERS for part in weight.parts)
        self.scratch = rounds * (self.inputs // BLOCK) * (12 + 4 * BLOCK)


def _in_panels(weight: np.ndarray, panel: int) -> np.ndarray:
    """Rearrange W (O, I) as (O / panel, panel, I), padded with zeros."""
    outputs, inputs = weight.shape
    wide = np.zeros((-(-outputs // panel), panel, inputs), weight.dtype)
    wide.reshape(-1, inputs)[:outputs] = weight
    return wide


def _filled(x: np.ndarray | None, panel: int, size: int) -> np.ndarray:
    """Pad a vector, or zeros for None, in float32 to a multiple of the panel size."""
    wide = np.zeros(size + -size % panel, np.float32)
    if x is not None:
        wide[:size] = x
    return wide


def _in_large_pages(x: np.ndarray) -> np.ndarray:
    """Copy x to contiguous memory aligned to a cache line, in large pages.

    Several share a block of memory, for which Linux is asked for pages of 2 MB. In those the
    processor finds its way faster, and reads ahead beyond the borders of small pages.
    """
    global _block
    size = x.nbytes + -x.nbytes % LINE
    with _lock:
        if size > len(_block):
            new = mmap.mmap(-1, max(SHARED, size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with contextlib.suppress(AttributeError, OSError):  # another system, or none such
                new.madvise(mmap.MADV_HUGEPAGE)
            _block = np.frombuffer(new, np.uint8)
        room, _block = _block[:size], _block[size:]
    copy = room[: x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy
