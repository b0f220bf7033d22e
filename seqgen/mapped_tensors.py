"""Tensors that are mapped from files of safetensors, without PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqgen.files import tensor_header

# What safetensors call the types that array models compute in.
TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I16": "<i2", "I8": "<i1", "BOOL": "|b1"}


def mapped_tensors(path: Path, types: Mapping[str, str]) -> dict[str, np.ndarray] | None:
    """Return the tensors of a file, which take no memory until they are read.

    Args:
        path: of the file.
        types: NumPy's name of each type that they may have; None is returned if one has another.

    Raises:
        OSError, ValueError: the file is missing or damaged.
    """
    first, header = tensor_header(path)
    if any(about.get("dtype") not in types for about in header.values()):
        return None
    content = np.memmap(path, np.uint8, "r", first)
    kinds = {name: np.dtype(types[about["dtype"]]) for name, about in header.items()}
    return {name: _array(content, name, header[name], kinds[name]) for name in header}


def mapped_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """Return stored weights as an array model takes them; see `mapped_tensors`.

    Those in float64 are rounded to float32, which models compute in unless they are asked for more.
    None where one has another type than those of array models, such as bf16.

    Raises:
        OSError, ValueError: the file is missing or damaged.
    """
    tensors = mapped_tensors(path, TYPES)
    return tensors and {name: _computed_in(array) for name, array in tensors.items()}


def _computed_in(mapped: np.memmap) -> np.ndarray:
    array = np.asarray(mapped)
    if array.dtype == np.float64:
        return array.astype(np.float32)
    return array if array.flags.aligned else array.copy()


def _array(content: np.memmap, name: str, about: Mapping[str, Any], kind: np.dtype) -> np.memmap:
    """Return one tensor of the bytes of all, which the header says `about`."""
    try:
        (begin, end), shape = about["data_offsets"], tuple(about["shape"])
        fits = 0 <= begin <= end <= len(content)
        fits = fits and end - begin == math.prod(shape) * kind.itemsize
        if not fits or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError
        return content[begin:end].view(kind).reshape(shape)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{name} is not where the header says") from None
