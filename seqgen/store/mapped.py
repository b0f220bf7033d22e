"""Stored weights as arrays that are mapped from their file, without PyTorch."""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np

from seqgen.files import regular

# What safetensors call the types that array models compute in.
TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I16": "<i2", "I8": "<i1", "BOOL": "|b1"}
# A header beyond this is damage: it has some hundred bytes for each weight.
LARGEST_HEADER = 100_000_000


def mapped_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """Return the weights of a file of safetensors, which take no memory until they are read.

    Those in float64 are rounded to float32, which models compute in unless they are asked for more.
    None where one has another type than those of array models, such as bf16.

    Raises:
        OSError, ValueError: the file is missing or damaged.
    """
    with regular(path).open("rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(LARGEST_HEADER, size - 8):
            raise ValueError("the header does not fit the file")
        try:
            header = json.loads(file.read(length))
        except RecursionError:
            header = None
        if not isinstance(header, dict):
            raise ValueError("the header is not a table")
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    header.pop("__metadata__", None)
    if not all(isinstance(about, dict) for about in header.values()):
        raise ValueError("the header is damaged")
    if any(about.get("dtype") not in TYPES for about in header.values()):
        return None
    return {name: _array(content, 8 + length, name, about) for name, about in header.items()}


def _array(content: mmap.mmap, first: int, name: str, about: dict[str, Any]) -> np.ndarray:
    """Return one weight, which the header says `about`; offsets count from byte `first`."""
    try:
        (begin, end), shape = about["data_offsets"], tuple(about["shape"])
        kind = np.dtype(TYPES[about["dtype"]])
        count = math.prod(shape)
        fits = 0 <= begin <= end <= len(content) - first and end - begin == count * kind.itemsize
        if not fits or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError
        array = np.frombuffer(content, kind, count, first + begin).reshape(shape)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{name} is not where the header says") from None
    if kind == np.float64:
        return array.astype(np.float32)
    return array if array.flags.aligned else array.copy()
