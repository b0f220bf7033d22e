"""Safetensors files, memory-mapped or read without PyTorch."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from seqgen.files import read_tensor_header, require_regular

# Files up to this size are read, larger ones are mapped. If a file is cut short, or written over,
# the pages that are mapped change, and those that are gone end the process with a signal.
READ_UP_TO = 16 << 20
# Elsewhere, as on Windows, memory needs no flags.
PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def mapped_tensors(
    path: Path, types: Mapping[str, str], whole: bool = False
) -> dict[str, np.ndarray] | None:
    """Memory-map the tensors of a file; see `mapped_with_header`."""
    mapped = mapped_with_header(path, types, whole)
    return None if mapped is None else mapped[0]


def mapped_with_header(
    path: Path, types: Mapping[str, str], whole: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]] | None:
    """Memory-map the tensors of a file, or read them if it is small; also return its header.

    Args:
        path: of the file.
        types: NumPy's name of each type that they may have; None is returned if one has another.
        whole: read a large file too, so that nothing that happens to it afterwards matters.

    Raises:
        OSError, ValueError: the file is missing or damaged.
    """
    with require_regular(path).open("rb") as file:
        first, header = read_tensor_header(file)
        if any(about.get("dtype") not in types for about in header.values()):
            return None
        content = _content(file, whole)[first:]
    kinds = {name: np.dtype(types[about["dtype"]]) for name, about in header.items()}
    return {name: _array(content, name, header[name], kinds[name]) for name in header}, header


def _content(file: IO[bytes], whole: bool) -> np.ndarray:
    """Return the bytes of an open file, memory-mapped or read."""
    size = os.fstat(file.fileno()).st_size
    if size > READ_UP_TO and not whole:
        return np.memmap(file, np.uint8, "r")
    memory = mmap.mmap(-1, size, **PRIVATE)  # as a mapped file, it begins with a page
    file.seek(0)
    if file.readinto(memory) != size:
        raise ValueError("it has become shorter while it was read")
    return np.frombuffer(memoryview(memory).toreadonly(), np.uint8)


def forget_pages(array: np.ndarray) -> None:
    """Release the memory of an array mapped from a file; it is reread on demand.

    Only the array's own pages are released, because tensors of one file share a map. Nothing
    happens to an array of another kind, or one that may be written to: it may be in no file. For
    tokens, which have a map to themselves, see `seqgen.text.corpus.release_pages`.
    """
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if not isinstance(owner, mmap.mmap) or array.flags.writeable or not array.flags.c_contiguous:
        return
    begin = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    first, end = -(-begin // mmap.PAGESIZE), (begin + array.nbytes) // mmap.PAGESIZE
    if first < end:
        with contextlib.suppress(AttributeError, OSError):  # a system without it
            size = (end - first) * mmap.PAGESIZE
            owner.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, size)


def _array(content: np.ndarray, name: str, about: Mapping[str, Any], kind: np.dtype) -> np.ndarray:
    """Build the array of one tensor from the file's bytes and its header entry `about`."""
    try:
        (begin, end), shape = about["data_offsets"], tuple(about["shape"])
        fits = 0 <= begin <= end <= len(content)
        fits = fits and end - begin == math.prod(shape) * kind.itemsize
        if not fits or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError
        return content[begin:end].view(kind).reshape(shape)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{name} is not where the header says") from None
