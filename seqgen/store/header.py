"""The header of a safetensors file, read without its tensors."""

from __future__ import annotations

import math
from pathlib import Path


def elements_of(weights: Path) -> int:
    """Return how many numbers the tensors of a file have.

    Raises:
        OSError: the file cannot be read.
        SafetensorError: its header is damaged, or does not fit the file.
    """
    from safetensors import safe_open

    with safe_open(weights, "pt") as file:
        names = file.keys()
        return sum(math.prod(file.get_slice(name).get_shape()) for name in names)
