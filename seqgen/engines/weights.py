"""Stored weights as memory-mapped arrays, read by name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from seqgen.engines.blocks import BlockMatrix, StoredRows, dequantize
from seqgen.mapped_tensors import mapped_with_header

# A function of rows, x (B, I) to (B, O).
ArrayMap = Callable[[np.ndarray], np.ndarray]
# By name, the shape of each weight; None stands for any size.
Shapes = dict[str, tuple[int | None, ...]]
# The types of tensors that are not floating-point numbers, by the last part of their names, without
# the number of an order.
TYPES = {
    "keys": "int64",
    "spelling": "int16",
    "codes": "int8",
    "blank": "bool",
    "num_batches_tracked": "int64",
}
FLOATS = "floating-point numbers"
# What safetensors call the types that array models read.
STORED = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I16": "<i2", "I8": "<i1", "BOOL": "|b1"}
STORED |= {"F16": "<u2", "BF16": "<u2", "U8": "|u1"}


def is_buffer(name: str) -> bool:
    """Check whether a stored tensor is a buffer that is not trained."""
    last = name.rpartition(".")[2]
    known = last in ("counts", "blank", "spelling") or last.startswith(("running_", "num_batches"))
    return known or name.startswith("trunk.features.")


def type_of(name: str) -> str:
    """Look up the NumPy type name of a stored tensor, or `FLOATS` for any float type."""
    return TYPES.get(re.sub(r"_\d+$", "", name.rpartition(".")[2]), FLOATS)


def require_types(found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Raise an error if stored tensors have types other than the model's.

    Args:
        found: the type of each tensor by name; `FLOATS` for floating-point numbers of any width.
        expected: the same, of the model.

    Raises:
        ValueError: names one that differs.
    """
    for name in sorted(found.keys() & expected.keys()):
        if found[name] != expected[name]:
            raise ValueError(f"{name} is stored as {found[name]}, not as {expected[name]}")


def parameter_count(shapes: Shapes, shared: Iterable[Sequence[str]]) -> int:
    """Count the trained parameters; those shared under several names count once."""
    again = {name for names in shared for name in names[1:]} | set(filter(is_buffer, shapes))
    return sum(math.prod(shape) for name, shape in shapes.items() if name not in again)


def linear_shapes(name: str, inputs: int, outputs: int, bias: bool = True) -> Shapes:
    """List the weight shapes of a linear layer, by name."""
    shapes: Shapes = {f"{name}.weight": (outputs, inputs)}
    return shapes | ({f"{name}.bias": (outputs,)} if bias else {})


def mapped_arrays(path: Path, whole: bool = False) -> dict[str, np.ndarray | BlockMatrix] | None:
    """Load stored weights for a NumPy model; see `mapped_tensors`.

    Those in float64 are rounded to float32, which models compute in unless they are asked for more.
    Matrices in fewer bits stay as they are. None where one has a type that array models cannot
    read.

    Raises:
        OSError, ValueError: the file is missing or damaged.
    """
    mapped = mapped_with_header(path, STORED, whole)
    if mapped is None:
        return None
    tensors, header = mapped
    if any(about["dtype"] == "U8" and "rows" not in about for about in header.values()):
        return None
    return {name: _as_stored(array, header[name]) for name, array in tensors.items()}


def _as_stored(mapped: np.ndarray, about: Mapping[str, str]) -> np.ndarray | BlockMatrix:
    array = np.asarray(mapped)
    if about["dtype"] == "U8":
        return BlockMatrix.read(array, about["rows"])
    if about["dtype"] in ("F16", "BF16"):
        if array.ndim == 2 and array.size:
            return BlockMatrix([StoredRows(about["dtype"], array.view(np.uint8))])
        raw = array.reshape(1, -1).view(np.uint8)
        return dequantize(raw, about["dtype"]).reshape(array.shape)
    if array.dtype == np.float64:
        return array.astype(np.float32)
    return array if array.flags.aligned else array.copy()


class Weights(Mapping[str, np.ndarray]):
    """Weights of a model or a part of it, by name; also as attributes, for equations.

    Args:
        arrays: every weight of the model.
        prefix: the part's, such as "layers.0."; nothing for the whole model.
        maps: of linear layers whose weights are not to be used, the map to use, by prefix.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        prefix: str = "",
        maps: Mapping[str, ArrayMap] | None = None,
    ) -> None:
        self._arrays, self._prefix, self._maps = arrays, prefix, maps or {}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[self._prefix + name]

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (
            name.removeprefix(self._prefix)
            for name in self._arrays
            if name.startswith(self._prefix)
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def part(self, *path: str | int) -> Weights:
        """Select the weights of a part: `part("layers", 0)`."""
        prefix = self._prefix + "".join(f"{name}." for name in path)
        return Weights(self._arrays, prefix, self._maps)

    @property
    def itself(self) -> np.ndarray:
        """Weight that the prefix itself names."""
        return self._arrays[self._prefix.removesuffix(".")]

    @property
    def replacement(self) -> ArrayMap | None:
        """Linear map that replaces this layer's weights, such as a quantized one; usually None."""
        return self._maps.get(self._prefix)

    def fitting(self, shapes: Shapes, groups: Iterable[Sequence[str]] = ()) -> Weights:
        """Check names, shapes and types of the weights, and add shared ones under all their names.

        Args:
            shapes: what the model needs, by every name.
            groups: of each weight that is shared, its names; it is stored under one of them.

        Raises:
            ValueError: there are others, or they have other shapes or types.
        """
        arrays = dict(self._arrays)
        types = {n: FLOATS if x.dtype.kind == "f" else x.dtype.name for n, x in arrays.items()}
        require_types(types, {name: type_of(name) for name in types})
        for names in groups:
            known = next((name for name in names if name in arrays), None)
            arrays |= {name: arrays[known] for name in names if known is not None}
        known = shapes.keys() & arrays.keys()
        wrong = (shapes.keys() | arrays.keys()) - {n for n in known if _fits(arrays[n], shapes[n])}
        if wrong:
            raise ValueError(f"tensors do not fit: {', '.join(sorted(wrong)[:3])}")
        return Weights(arrays, self._prefix, self._maps)


def _fits(array: np.ndarray, shape: tuple[int | None, ...]) -> bool:
    sizes = zip(array.shape, shape, strict=False)
    return array.ndim == len(shape) and all(wanted in (None, size) for size, wanted in sizes)
