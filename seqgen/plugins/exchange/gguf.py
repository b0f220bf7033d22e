"""Reader and writer of GGUF files: metadata, then tensors (versions 2 and 3, little-endian).

The file begins with `GGUF`, the version, and the numbers of tensors and facts. A fact is a name, a
type and a value; a tensor's entry is its name, its dimensions (the innermost first), its type, and
where it begins after the entries. Numbers are checked against the size of the file before any
memory is taken for what they announce.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqgen.engines.blocks import TYPES, StoredRows, dequantize
from seqgen.errors import SeqgenError, first_line
from seqgen.packages import require_packages
from seqgen.plugins.exchange import k_quants

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
# Types of facts, as struct knows them.
NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
UINT32, FLOAT32, BOOL = 4, 6, 7
INT32 = 5
# Types of tensors by number: how many elements make a block, and its bytes.
NAMES = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K"}
NAMES |= {11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 30: "BF16"}
BLOCKS = {number: (name, TYPES[name].size, TYPES[name].width) for number, name in NAMES.items()}
MOST_DIMENSIONS = 4
# Items of a list: no vocabulary comes near this.
MOST_ITEMS = 1 << 23


@dataclass(frozen=True)
class Entry:
    """Shape, number type and file offset of a tensor in a GGUF file.

    Attributes:
        shape: the outermost dimension first.
        kind: a key of `BLOCKS`.
        begin: its place in the file.
    """

    shape: tuple[int, ...]
    kind: int
    begin: int

    @property
    def size(self) -> int:
        """Size of the tensor in bytes."""
        _, block, width = BLOCKS[self.kind]
        return math.prod(self.shape) // block * width


class GGUFFile:
    """Memory-mapped GGUF file: its metadata (facts) and its tensors.

    Args:
        path: where it is.

    Raises:
        SeqgenError: it cannot be read, or is broken; says what is wrong.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._at = path, 0
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise SeqgenError(f"{path} cannot be read: {first_line(error)}") from None
        if self._take(4) != MAGIC:
            raise self.error("it does not begin with GGUF")
        if (version := self._number("I")) not in VERSIONS:
            raise self.error(f"version {version} is not 2 or 3")
        tensors, facts = self._number("Q"), self._number("Q")
        self.facts: dict[str, Any] = dict(self._fact() for _ in self._times(facts, 13))
        self.tensors = self._entries(tensors)

    def error(self, what: str) -> SeqgenError:
        """Build the error for a damaged or unsupported file."""
        return SeqgenError(f"{self.path}: {what}")

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._map):
            raise self.error("the file ends too early")
        content = self._map[self._at : end]
        self._at = end
        return content

    def _number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self._take(struct.calcsize(f"<{kind}")))[0]

    def _times(self, count: int, size: int) -> range:
        """Return range(count) after checking that the file has room for so many items."""
        if count * size > len(self._map) - self._at:
            raise self.error(f"it announces {count:,} things, more than it has room for")
        return range(count)

    def _text(self) -> str:
        size = self._number("Q")
        self._times(size, 1)
        return self._take(size).decode("utf-8", "replace")

    def _fact(self) -> tuple[str, Any]:
        return self._text(), self._value(self._number("I"), arrays=True)

    def _value(self, kind: int, arrays: bool) -> Any:
        if kind == STRING:
            return self._text()
        if kind in NUMBERS:
            return self._number(NUMBERS[kind])
        if kind != ARRAY or not arrays:
            raise self.error(f"a metadata value has the type {kind}, which does not exist")
        inner, count = self._number("I"), self._number("Q")
        if count > MOST_ITEMS:
            raise self.error(
                f"a list in the metadata has {count:,} items; at most {MOST_ITEMS:,} are read"
            )
        if inner in NUMBERS:
            width = struct.calcsize(NUMBERS[inner])
            self._times(count, width)
            return list(struct.unpack(f"<{count}{NUMBERS[inner]}", self._take(count * width)))
        return [self._value(inner, arrays=False) for _ in self._times(count, 8)]

    def _entries(self, count: int) -> dict[str, Entry]:
        places: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for _ in self._times(count, 24):
            name, dimensions = self._text(), self._number("I")
            if not 1 <= dimensions <= MOST_DIMENSIONS:
                raise self.error(f"the tensor {name[:80]!r} has {dimensions:,} dimensions")
            shape = tuple(self._number("Q") for _ in range(dimensions))[::-1]
            if name in places:
                raise self.error(f"the tensor {name[:80]!r} is there twice")
            places[name] = shape, self._number("I"), self._number("Q")
        alignment = self.facts.get("general.alignment", ALIGNMENT)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 16:
            raise self.error("general.alignment is not such a number")
        start = -(-self._at // alignment) * alignment
        return {name: self._entry(name, *place, start) for name, place in places.items()}

    def _entry(
        self, name: str, shape: tuple[int, ...], kind: int, offset: int, start: int
    ) -> Entry:
        if kind not in BLOCKS:
            known = ", ".join(title for title, *_ in BLOCKS.values())
            raise self.error(f"the tensor {name[:80]!r} is of type {kind}; seqgen reads {known}")
        entry = Entry(shape, kind, start + offset)
        if shape[-1] % BLOCKS[kind][1] or entry.begin + entry.size > len(self._map):
            raise self.error(
                f"the tensor {name[:80]!r} of shape {list(shape)} does not fit the file"
            )
        return entry

    def rows(self, name: str) -> StoredRows:
        """Return the rows of a tensor, mapped, in the type that they have."""
        entry = self.tensors[name]
        raw = np.frombuffer(self._map, np.uint8, entry.size, entry.begin)
        count = math.prod(entry.shape[:-1])
        return StoredRows(NAMES[entry.kind], raw.reshape(count, entry.size // max(1, count)))

    def read(self, name: str) -> np.ndarray:
        """Read a tensor as float32."""
        rows = self.rows(name)
        return dequantize(rows.raw, rows.kind).reshape(self.tensors[name].shape)


def write(
    facts: Mapping[str, Any], tensors: Mapping[str, np.ndarray], kinds: Mapping[str, int]
) -> Iterator[bytes]:
    """Yield a GGUF file in pieces.

    Args:
        facts: by name: a text, a number, true or false, or a list of texts, ints or floats.
        tensors: by name, float32.
        kinds: the type of each tensor, a key of `BLOCKS`.

    Raises:
        SeqgenError: a type needs the gguf package; or a number is too large for it.
    """
    head = MAGIC + struct.pack("<IQQ", VERSIONS[-1], len(tensors), len(facts))
    parts = [head, *(_text(name) + _typed(value) for name, value in facts.items())]
    offset = 0
    for name, tensor in tensors.items():
        entry, shape = Entry(tensor.shape, kinds[name], offset), tensor.shape[::-1]
        numbers = struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, entry.kind, offset)
        parts.append(_text(name) + numbers)
        offset += entry.size + _gap(entry.size)
    whole = b"".join(parts)
    yield whole + bytes(_gap(len(whole)))
    for name, tensor in tensors.items():
        content = _quantized(name, tensor, kinds[name])
        yield content + bytes(_gap(len(content)))


def _quantized(name: str, tensor: np.ndarray, kind: int) -> bytes:
    x, title = np.ascontiguousarray(tensor, dtype="<f4"), BLOCKS[kind][0]
    if title == "F32":
        return x.tobytes()
    # A block's scale is in F16, too: its largest number divided by this. Q4_1 and Q5_1 also contain
    # its smallest.
    limits = {"F16": 1, "Q8_0": 127, "Q5_1": 1, "Q5_0": 16, "Q4_1": 1, "Q4_0": 8}
    limits |= dict.fromkeys(k_quants.QUANTIZERS, 1)
    if (limit := limits.get(title)) and np.abs(x).max(initial=0) >= limit * 65504:
        raise SeqgenError(f"{name} has numbers too large for {title}; use bf16 or f32")
    if title in k_quants.QUANTIZERS:
        return k_quants.quantize(x, title)
    return _package(f"writing numbers of type {title}").quantize(x, kind).tobytes()


def _package(purpose: str) -> Any:
    """Import the quantization module of the gguf package."""
    require_packages(purpose, "gguf")
    from gguf import quants

    return quants


def _gap(size: int) -> int:
    return -size % ALIGNMENT


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _typed(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    return struct.pack("<I", ARRAY) + _array(value)


def _array(values: Sequence[Any]) -> bytes:
    count = struct.pack("<Q", len(values))
    if not values or isinstance(values[0], str):
        return struct.pack("<I", STRING) + count + b"".join(map(_text, values))
    kind = FLOAT32 if isinstance(values[0], float) else INT32
    return struct.pack("<I", kind) + count + struct.pack(f"<{len(values)}{NUMBERS[kind]}", *values)
