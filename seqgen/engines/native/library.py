"""The compiled library, if there is one."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from seqgen.engines.native.compiling import LIBRARIES, SOURCE, mark_of

if TYPE_CHECKING:
    import numpy as np

# Names a level of `LIBRARIES`, another library, or none by "0".
VARIABLE = "SEQGEN_NATIVE"
# How many threads compute, one by default; see `cli.process.use_threads`.
THREADS = "OMP_NUM_THREADS"
# Libraries that were found, but compiled from another version of the source.
outdated: list[Path] = []


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library; None where there is none of this source for this processor."""
    named = os.environ.get(VARIABLE)
    if named == "0":
        return None
    paths = [LIBRARIES.get(named, Path(named))] if named else LIBRARIES.values()
    return next((found for path in paths if (found := _opened(path)) is not None), None)


def _opened(path: Path) -> ctypes.CDLL | None:
    if not path.is_file():
        return None
    try:
        found = ctypes.CDLL(str(path))
        found.mark.restype = ctypes.c_uint32
        if found.mark() != mark_of(SOURCE):
            outdated.append(path)
            return None
        if not found.suits():
            return None
    except (OSError, AttributeError):  # of another machine, or another version
        return None
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    found.product.argtypes = [pointer, number, pointer, number, pointer, number, pointer]
    found.run.argtypes = [pointer, number, number, pointer, pointer, pointer]
    found.use_threads.argtypes, found.lanes.restype = [number], number
    found.added.restype = number
    found.product.restype = found.run.restype = found.use_threads.restype = None
    found.overwrite.argtypes = [pointer, *[number] * 4, pointer, number, number]
    found.overwrite.restype = None
    found.log_softmax.argtypes = [number, number, pointer, pointer]
    found.draw.argtypes = [number, number, *[pointer] * 3, number, *[pointer] * 3]
    found.log_softmax.restype = found.draw.restype = None
    found.ngram_contexts.argtypes = [pointer, pointer, *[number] * 3, *[pointer] * 3]
    found.ngram_nodes.argtypes = [pointer, *[number] * 3, *[pointer] * 3]
    found.ngram_log_probs.argtypes = [pointer, number, *[pointer] * 3]
    found.ngram_best.argtypes = [pointer, pointer, number, number, *[pointer] * 3]
    found.ngram_draw.argtypes = [pointer, number, *[pointer] * 3, number, *[pointer] * 3]
    for name in ("contexts", "nodes", "log_probs", "best", "draw"):
        getattr(found, f"ngram_{name}").restype = None
    found.sampled_room.argtypes, found.sampled_room.restype = [pointer], number
    found.sampled_cost.argtypes, found.sampled_cost.restype = [pointer], ctypes.c_double
    found.end_in_a_line.argtypes, found.end_in_a_line.restype = [], None
    found.use_threads(_threads())
    return found


def address(x: np.ndarray) -> int:
    """Return where an array's numbers begin; `x.ctypes` takes a microsecond."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(x))
    except (TypeError, ValueError):  # read only, empty, or not in one piece
        return x.ctypes.data


def use_threads() -> None:
    """Have the library compute with as many threads as the environment now says."""
    if (found := library()) is not None:
        found.use_threads(_threads())


def _threads() -> int:
    first = os.environ.get(THREADS, "").partition(",")[0].strip()
    return int(first) if first.isdecimal() else 1
