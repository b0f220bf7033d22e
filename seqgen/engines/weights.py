"""Stored weights as arrays: mapped from the file, and read by name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

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


def is_buffer(name: str) -> bool:
    """Return whether nothing trains what is stored: counts, spellings, frozen models."""
    last = name.rpartition(".")[2]
    known = last in ("counts", "blank", "spelling") or last.startswith(("running_", "num_batches"))
    return known or name.startswith("trunk.features.")


def type_of(name: str) -> str:
    """Return NumPy's name of the type that a tensor has, or `FLOATS`, of any width."""
    return TYPES.get(re.sub(r"_\d+$", "", name.rpartition(".")[2]), FLOATS)


def require_types(found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Refuse tensors of other types than a model computes with.

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
    """Return how many numbers are trained, those counted once that share names."""
    again = {name for names in shared for name in names[1:]} | set(filter(is_buffer, shapes))
    return sum(math.prod(shape) for name, shape in shapes.items() if name not in again)


def linear_shapes(name: str, inputs: int, outputs: int, bias: bool = True) -> Shapes:
    """Return the shapes of a linear layer's weights."""
    shapes: Shapes = {f"{name}.weight": (outputs, inputs)}
    return shapes | ({f"{name}.bias": (outputs,)} if bias else {})


class Weights(Mapping[str, np.ndarray]):
    """The weights of a model, or of a part of it, by name; also as attributes, for equations.

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
        """Return the weights of a part of this: `part("layers", 0)`."""
        prefix = self._prefix + "".join(f"{name}." for name in path)
        return Weights(self._arrays, prefix, self._maps)

    @property
    def itself(self) -> np.ndarray:
        """The weight of which this is the path, and no part."""
        return self._arrays[self._prefix.removesuffix(".")]

    @property
    def replacement(self) -> ArrayMap | None:
        """The linear map to be used in place of these weights of a linear layer; usually none."""
        return self._maps.get(self._prefix)

    def fitting(self, shapes: Shapes, groups: Iterable[Sequence[str]] = ()) -> Weights:
        """Return these weights, each that parts of the model share under all of its names.

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
