"""Tracing of NumPy equations into programs that the compiled library runs in one call.

An equation is run once over `Recorded` arrays, which compute nothing but remember what is asked of
them. It acts on each row of its inputs by itself, so it is recorded for one row and run for any
number. What cannot be recorded, such as a choice by a value, raises `Unrecordable`, and is left to
NumPy.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqgen.engines.native.library import address, library
from seqgen.engines.native.maps import NativeMap

# By the library's numbers.
NAMES = (
    *("positive", "tanh", "exp", "sqrt", "negative", "expm1", "log", "erf", "absolute"),
    *("add", "subtract", "multiply", "divide", "maximum", "minimum"),
)
SUM, MOST, PRODUCT, ATTEND, SOURCE = range(len(NAMES), len(NAMES) + 5)
CODES = {name: code for code, name in enumerate(NAMES)} | {"erf (vectorized)": NAMES.index("erf")}
REDUCTIONS = {np.add: SUM, np.maximum: MOST}
FLOAT = 4
# `buffer`, `operand` and `instruction` of the library.
BUFFER = np.dtype([("address", "i8"), ("width", "i8")])
OPERAND = np.dtype([("buffer", "i8"), ("offset", "i8"), ("strides", "i8", 3)])
INSTRUCTION = np.dtype(
    [("code", "i8"), ("shape", "i8", 3), ("operands", OPERAND, 4), ("about", "i8", 2)]
)
# The fields of an operand.
Operand = tuple[int, int, tuple[int, int, int]]
NO_OPERAND = 0, 0, (0, 0, 0)
# How many parts the library divides work into at most.
MOST_PARTS = 16


class Unrecordable(Exception):  # noqa: N818
    """Raised when an operation on a recorded array cannot be part of a program."""


class Recorded(np.ndarray):
    """Tracer array (1, ...) of one row: has shape and views, but no values."""

    recording: Recording

    def __array_finalize__(self, source: Any) -> None:
        self.recording = getattr(source, "recording", None)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (None,), **options: Any
    ) -> Recorded:
        recording = next(x.recording for x in (*inputs, *out) if isinstance(x, Recorded))
        if method == "reduce":
            return recording.reduced(ufunc, *inputs, out[0], **options)
        if method != "__call__" or options:
            raise Unrecordable(f"{ufunc.__name__}.{method}")
        return recording.elementwise(ufunc.__name__, inputs, out[0])

    def __array_function__(self, function: Callable, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.concatenate:
            return self.recording.joined(*args, **kwargs)
        return super().__array_function__(function, types, args, kwargs)

    def __setitem__(self, place: Any, value: Any) -> None:
        self.recording.elementwise("positive", (value,), self[place])


class Recording:
    """Trace of the operations on recorded arrays."""

    def __init__(self) -> None:
        self.roots: list[np.ndarray] = []  # each array that has memory of its own
        self.constants: dict[int, tuple[int, np.ndarray]] = {}
        self.widths: list[int] = []  # of a buffer's rows; 0 of a constant
        self.instructions: list[tuple] = []  # the fields of each
        self.maps: list[NativeMap] = []
        self._begins: list[tuple[int, int]] = []  # addresses, and which buffer begins there

    def array(self, *shape: int) -> Recorded:
        """Make a new tracer array, for an input or a result."""
        # Not a number: what is computed from it behind our back is noticed.
        memory = np.full(shape, np.nan, np.float32)
        root = memory.view(Recorded)
        root.recording = self
        bisect.insort(self._begins, (root.ctypes.data, len(self.widths)))
        self.widths.append(root.size)
        # Not what refers back: such a cycle would keep a model's matrices until it is collected.
        self.roots.append(memory)
        return root

    def elementwise(self, name: str, inputs: Sequence[Any], out: np.ndarray | None) -> Recorded:
        """Record an elementwise operation."""
        if name == "square":
            name, inputs = "multiply", (*inputs, *inputs)
        if name not in CODES:
            raise Unrecordable(name)
        arrays = [np.asarray(x).view(np.ndarray) if np.isscalar(x) else x for x in inputs]
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        if out is None:
            out = self._result(shape)
        elif not isinstance(out, Recorded) or (out.shape != shape and name != "positive"):
            raise Unrecordable("another output")
        self._record(CODES[name], out.shape, out, *arrays)
        return out

    def reduced(
        self,
        ufunc: np.ufunc,
        x: Recorded,
        out: None = None,
        axis: int = 0,
        keepdims: bool = False,
        **options: Any,
    ) -> Recorded:
        """Record a sum or maximum over the last axis."""
        if ufunc not in REDUCTIONS or axis not in (-1, x.ndim - 1) or out is not None or options:
            raise Unrecordable(f"{ufunc.__name__}.reduce")
        y = self._result((*x.shape[:-1], 1))
        self._record(REDUCTIONS[ufunc], x.shape, y, x)
        return y if keepdims else y[..., 0]

    def joined(self, parts: Sequence[np.ndarray], axis: int = 0) -> Recorded:
        """Record a concatenation along the last axis."""
        first = parts[0]
        if axis not in (-1, first.ndim - 1) or first.ndim < 2:
            raise Unrecordable("arrays below one another")
        y, begin = self._result((*first.shape[:-1], sum(x.shape[-1] for x in parts))), 0
        for x in parts:
            y[..., begin : begin + x.shape[-1]] = x
            begin += x.shape[-1]
        return y

    def product(self, map_: NativeMap, x: Recorded) -> Recorded:
        """Record W x + b (1, O) of x (1, I)."""
        y = self._result((*x.shape[:-1], map_.outputs))
        if x.size != map_.inputs or x.strides[-1] != FLOAT:
            raise Unrecordable("a product of several rows")
        self.maps.append(map_)
        shape = 1, 1, map_.inputs
        operands = [(*self._place(one), (0, 0, 1)) for one in (y, x)]
        self._add(PRODUCT, shape, *operands, about=(map_.address, 0))
        return y

    def __call__(self, layer: int, q: Recorded, k: Recorded, v: Recorded) -> Recorded:
        """Record what q (1, heads, 1, D) reads of a layer's past, which k and v are added to."""
        return self._attend(ATTEND, layer, q, k, v)

    def source(self, layer: int, q: Recorded) -> Recorded:
        """Record attention of q (1, heads, 1, D) to the source in a layer."""
        return self._attend(SOURCE, layer, q)

    def _attend(self, code: int, layer: int, *qkv: Recorded) -> Recorded:
        if any(x.shape[2] != 1 or x.strides[3] != FLOAT for x in qkv):
            raise Unrecordable("several queries")
        q, of_keys = qkv[0], qkv[-1]
        out = self._result(q.shape)
        operands = [(*self._place(x), (x.strides[1] // FLOAT, 0, 1)) for x in (out, *qkv)]
        shape = q.shape[1], 1, q.shape[3]
        self._add(code, shape, *operands, about=(layer, of_keys.shape[1]))
        return out

    def _result(self, shape: tuple[int, ...]) -> Recorded:
        if len(shape) < 2 or shape[0] != 1:
            raise Unrecordable("rows that are mixed")
        return self.array(*shape)

    def _record(
        self, code: int, shape: tuple[int, ...], out: np.ndarray, *inputs: np.ndarray
    ) -> None:
        """Record an instruction on arrays broadcast to a shape."""
        arrays = [out, *inputs]
        reduces = code in REDUCTIONS.values()
        views = [
            np.broadcast_to(x.view(np.ndarray), shape if i or not reduces else out.shape)
            for i, x in enumerate(arrays)
        ]
        strides = [[step // FLOAT for step in x.strides] for x in views]
        if reduces:
            strides[0][-1] = 0
        axes = _merged(shape, strides, keep_last=reduces)
        if len(axes) > 3:
            raise Unrecordable("more than three axes")
        axes = [(1, (0,) * len(arrays))] * (3 - len(axes)) + axes
        sizes, steps = zip(*axes, strict=True)
        of_each = zip(arrays, zip(*steps, strict=True), strict=True)
        operands = [(*self._place(x), of_array) for x, of_array in of_each]
        same = [x for x in operands[1:] if x[0] == operands[0][0] and x != operands[0]]
        if same and any(np.may_share_memory(out, x) for x in inputs):
            raise Unrecordable("an output that overlaps an input")
        self._add(code, sizes, *operands)

    def _place(self, x: np.ndarray) -> tuple[int, int]:
        """Find the buffer of an array and its offset there."""
        address = x.ctypes.data
        at = bisect.bisect_right(self._begins, (address, len(self.widths))) - 1
        if at >= 0:
            begin, buffer = self._begins[at]
            offset = (address - begin) // FLOAT
            if offset < self.widths[buffer]:
                return buffer, offset
        if isinstance(x, Recorded) or (x.dtype != np.float32 and x.size != 1):
            raise Unrecordable("a copy, or an array of another type")
        constant = np.asarray(x, np.float32)
        if np.isnan(constant).any():
            raise Unrecordable("numbers that were made of recorded arrays")
        known = self.constants.get(address)
        if known is None or x.size == 1:
            known = self.constants[constant.ctypes.data] = len(self.widths), constant
            self.widths.append(0)
            self.roots.append(constant)
        return known[0], 0

    def _add(
        self, code: int, shape: Sequence[int], *operands: Operand, about: tuple[int, int] = (0, 0)
    ) -> None:
        padded = [*operands, *[NO_OPERAND] * (4 - len(operands))]
        self.instructions.append((code, shape, padded, about))


class _ThreadBuffers(NamedTuple):
    """Memory in which one thread runs a program.

    Attributes:
        rows: B.
        memory: of the arrays that last within a run only.
        buffers: a `BUFFER` each.
        address: of `buffers`.
        scratch: the address of what products need on the way.
        shapes: of the outputs.
    """

    rows: int
    memory: np.ndarray
    buffers: np.ndarray
    address: int
    scratch: int
    shapes: list[tuple[int, ...]]


class Program:
    """Compiled-library program that computes a traced equation for any number of rows.

    Args:
        recording: of an equation.
        inputs: the arrays that it was run on.
        outputs: what it returned.
    """

    def __init__(
        self,
        recording: Recording,
        inputs: Sequence[Recorded],
        outputs: Sequence[Recorded],
    ) -> None:
        self._run = library().run
        self._kept = recording.maps, recording.roots  # the library reads their memory
        begun = [recording._place(x)[0] for x in inputs]
        made, self._shapes = [], [x.shape[1:] for x in outputs]
        for x in outputs:
            if x.ndim < 2 or x.shape[0] != 1:
                raise Unrecordable("rows that are mixed")
            buffer, _ = recording._place(x)
            if buffer in (*begun, *made) or recording.widths[buffer] != x.size:
                x = recording.elementwise("positive", (x,), recording.array(*x.shape))
                buffer, _ = recording._place(x)
            made.append(buffer)
        self._instructions = np.array(recording.instructions, INSTRUCTION)
        self._begun, self._made = begun, made
        self._buffers = np.zeros(len(recording.widths), BUFFER)
        self._buffers["width"] = recording.widths
        for buffer, constant in recording.constants.values():
            self._buffers[buffer] = constant.ctypes.data, 0
        self._temporary, self._offsets, self._size = self._arranged({*begun, *made})
        self._begun_widths = self._buffers["width"][begun].tolist()
        self._code = self._instructions.ctypes.data, len(self._instructions)
        self._scratch = max((map_.scratch for map_ in recording.maps), default=0)
        self._threads = threading.local()

    def _arranged(self, others: set[int]) -> tuple[np.ndarray, np.ndarray, int]:
        """Plan the memory of temporary buffers: which they are, their offsets and total size.

        Memory is used again once nothing reads it any more, so that it stays in the cache.
        """
        operands = self._instructions["operands"]["buffer"].tolist()
        widths = self._buffers["width"].tolist()
        last = {buffer: i for i, row in enumerate(operands) for buffer in row}
        begins: dict[int, int] = {}
        free: list[tuple[int, int]] = []  # size and begin
        size = 0
        for i, row in enumerate(operands):
            out = row[0]
            width = widths[out]
            if out not in others and out not in begins and width:
                fitting = min((x for x in free if x[0] == width), default=None)
                if fitting is None:
                    begins[out], size = size, size + width
                else:
                    free.remove(fitting)
                    begins[out] = fitting[1]
            free += [(widths[b], begins[b]) for b in {*row} if b in begins and last[b] == i]
        buffers = np.array([*begins], np.int64)
        return buffers, np.array([*begins.values()], np.int64) * FLOAT, size

    def _room(self, rows: int) -> _ThreadBuffers:
        """Return a thread's buffers for a number of rows, reused between runs."""
        before = getattr(self._threads, "room", None)
        if before is not None and before.rows == rows:
            return before
        size = (self._size + self._scratch // FLOAT + 1) * rows
        fits = before is not None and before.memory.size >= size
        memory = before.memory if fits else np.empty(size, np.float32)
        buffers = self._buffers.copy()
        buffers["address"][self._temporary] = memory.ctypes.data + rows * self._offsets
        self._threads.room = room = _ThreadBuffers(
            rows=rows,
            memory=memory,
            buffers=buffers,
            address=buffers.ctypes.data,
            scratch=memory.ctypes.data + self._size * rows * FLOAT,
            shapes=[(rows, *shape) for shape in self._shapes],
        )
        return room

    def __call__(
        self, rows: int, inputs: Sequence[np.ndarray], past: Past | None = None
    ) -> list[np.ndarray]:
        """Run it.

        Args:
            rows: B.
            inputs: (B, ...) of float32; one (1, ...) is every row's.
            past: what attention reads; None for a program without.

        Returns:
            The outputs, (B, ...) each.
        """
        room = self._room(rows)
        addresses, widths = room.buffers["address"], room.buffers["width"]
        outputs = [np.empty(shape, np.float32) for shape in room.shapes]
        kept = [np.ascontiguousarray(x, np.float32) for x in inputs]
        for buffer, width, x in zip(self._begun, self._begun_widths, kept, strict=True):
            addresses[buffer] = address(x)
            widths[buffer] = width if len(x) == rows else 0
        for buffer, x in zip(self._made, outputs, strict=True):
            addresses[buffer] = address(x)
        state = None if past is None else ctypes.byref(past)
        self._run(*self._code, rows, room.address, state, room.scratch)
        return outputs


class Past(ctypes.Structure):
    """Ctypes struct `past` of the library: key-value cache and which positions each token sees.

    Attributes:
        kept: the arrays whose addresses these are.
    """

    _fields_: ClassVar = [
        *((name, ctypes.c_void_p) for name in ("keys", "values", "rows", "starts", "ends")),
        *((name, ctypes.c_void_p) for name in ("order", "like", "until")),
        *((name, ctypes.c_int64) for name in ("slots", "room")),
        *((name, ctypes.c_void_p) for name in ("weights", "source_keys", "source_values")),
        *((name, ctypes.c_void_p) for name in ("owners", "lengths")),
        ("places", ctypes.c_int64),
    ]

    kept: tuple[np.ndarray, ...]


def describe_cache(
    places: np.ndarray,
    slots: int,
    starts: Sequence[int],
    ends: Sequence[int],
    rows: Sequence[int] | None = None,
    origins: tuple[np.ndarray, np.ndarray] | None = None,
    sources: tuple[Sequence[np.ndarray], Sequence[int], Sequence[int]] | None = None,
) -> Past:
    """Describe a key-value cache, and attention to sources, for the compiled library.

    Args:
        places: the addresses of the keys (B, heads, slots, D) of each layer, then of its values.
        slots: of each row.
        starts: the first slot that each token sees, one or several tokens for a row.
        ends: what follows each token's own slot.
        rows: the row of each token, those of one row in order; by default one for each row.
        origins: an earlier row for each, (B,), and the slot before which both hold the same, (B,):
            such slots are read there, by one token for each row.
        sources: the keys (S, heads, L, D) of each layer, then the values; which source each row
            has, B of them; and their lengths, S of them.
    """
    order = of_tokens = range(len(starts))
    kept, of_sources, width = [places], {}, 0
    if sources:
        leaves, owners, lengths = sources
        leaves = [np.ascontiguousarray(x, np.float32) for x in leaves]
        owners = owners if rows is None else [owners[row] for row in rows]
        order = np.argsort(owners, kind="stable")  # tokens that read the same
        width = leaves[0].shape[2]
        addresses = np.array([x.ctypes.data for x in leaves], np.int64)
        integers = np.array(owners, np.int64), np.array(lengths, np.int64)
        kept += [*leaves, addresses, *integers]
        of_sources = {
            "source_keys": addresses.ctypes.data,
            "source_values": addresses.ctypes.data + addresses.nbytes // 2,
            "owners": integers[0].ctypes.data,
            "lengths": integers[1].ctypes.data,
            "places": width,
        }
    elif origins is not None:
        groups = np.where(origins[1] > 0, origins[0], of_tokens)
        for _ in range(4):  # from row to row, 16 of them
            groups = groups[groups]
        order = np.argsort(groups, kind="stable")
    if origins is not None:
        like, until = (np.array(x, np.int64) for x in origins)
        kept += [like, until]
        of_sources |= {"like": like.ctypes.data, "until": until.ctypes.data}
    tokens = np.array([of_tokens if rows is None else rows, starts, ends, order], np.int64)
    room = max(*ends, width)
    weights = np.empty(MOST_PARTS * room, np.float32)
    at, token, step = places.ctypes.data, tokens.ctypes.data, tokens.strides[0]
    past = Past(
        keys=at,
        values=at + places.nbytes // 2,
        rows=token,
        starts=token + step,
        ends=token + 2 * step,
        order=token + 3 * step,
        slots=slots,
        room=room,
        weights=weights.ctypes.data,
        **of_sources,
    )
    past.kept = *kept, tokens, weights
    return past


def _merged(
    shape: Sequence[int], strides: Sequence[Sequence[int]], keep_last: bool
) -> list[tuple[int, tuple[int, ...]]]:
    """Merge adjacent contiguous axes; return sizes and strides of the rest, without axes of size 1.

    Args:
        shape: of what all arrays are repeated to.
        strides: of each array.
        keep_last: the last axis stays by itself.
    """
    axes: list[tuple[int, tuple[int, ...]]] = []
    last = len(shape) - 1
    for i, size in enumerate(shape):
        steps = tuple(of_array[i] for of_array in strides)
        if size == 1 and not (keep_last and i == last):
            continue
        joins = axes and all(a == b * size for a, b in zip(axes[-1][1], steps, strict=True))
        if joins and not (keep_last and i == last):
            axes[-1] = axes[-1][0] * size, steps
        else:
            axes.append((size, steps))
    return axes


def record_program(
    equation: Callable[..., Sequence[Recorded]],
    shapes: Sequence[tuple[int, ...]],
    recording: Recording | None = None,
) -> Program | None:
    """Trace an equation into a program; None if the library or an operation is unavailable.

    Args:
        equation: takes an array (1, ...) of each shape to all outputs.
        shapes: of a row of each input, without the row.
        recording: what is used to record; a new one by default.
    """
    if library() is None:
        return None
    recording = recording or Recording()
    inputs = [recording.array(1, *shape) for shape in shapes]
    try:
        return Program(recording, inputs, equation(*inputs))
    except Unrecordable:
        return None
