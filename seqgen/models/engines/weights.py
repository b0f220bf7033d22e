"""Stored weights as arrays: mapped from the file, and read by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from seqgen.models.engines.arrays import Affine


class Weights(Mapping[str, np.ndarray]):
    """The weights of a model, or of a part of it, by name; also as attributes, for equations.

    Args:
        arrays: every weight of the model.
        prefix: the part's, such as "layers.0."; nothing for the whole model.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], prefix: str = "") -> None:
        self._arrays, self._prefix = arrays, prefix

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
        return Weights(self._arrays, self._prefix + "".join(f"{name}." for name in path))

    def affine(self, *path: str | int) -> Affine:
        """Return the linear layer at a path: W x + b, or W x where none is stored."""
        layer = self.part(*path)
        return Affine(layer["weight"], layer.get("bias"))
