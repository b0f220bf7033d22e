"""Compiling and loading of the C library from `kernels.c`, if there is a compiler.

A build of the package compiles it (`hatch_build.py`), and so does `python -m
seqgen.engines.native.library`, once for each level of processor. It imports nothing of the
package, for it runs before that is installed.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

SOURCE = Path(__file__).parent / "kernels.c"
# No flag that lets sums be added up in another order than the one that is written.
FLAGS = (
    *("-std=gnu11", "-shared", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Wno-psabi"),
    *("-fno-math-errno", "-fno-trapping-math"),
)
OPTIMISED = ("-O2", "-ftree-vectorize")
# Of x86-64 by name, the best first; what is asked of the compiler.
X86_LEVELS = {
    "avx512": (
        *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mfma", "-mf16c"),
        "-mprefer-vector-width=512",
    ),
    "avx2": ("-mavx2", "-mfma", "-mf16c"),
}
IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
LEVELS: dict[str, tuple[str, ...]] = X86_LEVELS if IS_X86 else {"plain": ()}
# Not `.so`: what walks the modules of a package would take that for one.
LIBRARIES = {level: SOURCE.with_name(f"kernels-{level}.so.1") for level in LEVELS}
# Names a level of `LIBRARIES`, another library, or none by "0".
VARIABLE = "SEQGEN_NATIVE"
# How many threads compute, one by default; see `cli.process.use_threads`.
THREADS = "OMP_NUM_THREADS"
# Libraries that the last search found, but that are compiled from another version of the source.
outdated: list[Path] = []


def source_checksum(source: Path) -> int:
    """Compute a checksum of the C source, which the library stores, to detect changes."""
    return zlib.crc32(source.read_bytes())


def compiler() -> list[str] | None:
    """Find a C compiler command: $CC, Python's own, or a common one."""
    for name in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        command = shlex.split(name or "")
        if command and shutil.which(command[0]):
            return command
    return None


def compile_all() -> list[Path]:
    """Compile the kernels for all instruction-set levels that the compiler supports.

    Raises:
        OSError: there is no compiler, or it fails at every level.
    """
    made, failure = [], None
    for level, target in LIBRARIES.items():
        target.unlink(missing_ok=True)
        try:
            compile_kernels(target, LEVELS[level])
            made.append(target)
        except OSError as error:
            failure = error
    if failure and not made:
        raise failure
    return made


def compile_kernels(target: Path, level: Sequence[str], options: Sequence[str] = OPTIMISED) -> None:
    """Compile the kernels for one instruction-set level.

    Args:
        target: the library to be written.
        level: the compiler's options for a level of processor.
        options: others, beside those that are always given.

    Raises:
        OSError: there is no compiler, or it fails.
    """
    command = compiler()
    if command is None:
        raise OSError("there is no C compiler")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        mark = f"-DMARK={source_checksum(SOURCE)}u"
        compiler_flags = [*FLAGS, *level, *options, mark, str(SOURCE), "-lm", "-o", str(made)]
        done = subprocess.run(
            [*command, *compiler_flags], capture_output=True, text=True, check=False
        )
        if done.returncode:
            reason = done.stderr.strip().partition("\n")[0]
            raise OSError(f"{command[0]} fails: {reason}")
        made.replace(target)


@functools.cache
def library() -> ctypes.CDLL | None:
    """Load the compiled library; None if there is no current one for this processor."""
    outdated.clear()
    named = os.environ.get(VARIABLE)
    if named == "0":
        return None
    paths = [LIBRARIES.get(named, Path(named))] if named else LIBRARIES.values()
    return next((opened for path in paths if (opened := _opened(path)) is not None), None)


def _opened(path: Path) -> ctypes.CDLL | None:
    if not path.is_file():
        return None
    try:
        loaded = ctypes.CDLL(str(path))
        loaded.mark.restype = ctypes.c_uint32
        if loaded.mark() != source_checksum(SOURCE):
            outdated.append(path)
            return None
        if not loaded.suits():
            return None
    except (OSError, AttributeError):  # of another machine, or another version
        return None
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    loaded.product.argtypes = [pointer, number, pointer, number, pointer, number, pointer]
    loaded.run.argtypes = [pointer, number, number, pointer, pointer, pointer]
    loaded.use_threads.argtypes, loaded.lanes.restype = [number], number
    loaded.added.restype = number
    loaded.dequantize.argtypes, loaded.dequantize.restype = [number, number, pointer, pointer], None
    loaded.product.restype = loaded.run.restype = loaded.use_threads.restype = None
    loaded.overwrite.argtypes = [pointer, *[number] * 4, pointer, number, number]
    loaded.overwrite.restype = None
    loaded.log_softmax.argtypes = [number, number, pointer, pointer]
    loaded.draw.argtypes = [number, number, *[pointer] * 3, number, *[pointer] * 3]
    loaded.log_softmax.restype = loaded.draw.restype = None
    loaded.mix.argtypes = [*[number] * 3, pointer, pointer, number, pointer, pointer]
    loaded.gate.argtypes = [*[number] * 3, *[pointer] * 4, ctypes.c_float, pointer, pointer]
    loaded.mix.restype = loaded.gate.restype = None
    loaded.ngram_contexts.argtypes = [pointer, pointer, *[number] * 3, *[pointer] * 3]
    loaded.ngram_nodes.argtypes = [pointer, *[number] * 3, *[pointer] * 3]
    loaded.ngram_log_probs.argtypes = [pointer, number, *[pointer] * 3]
    loaded.ngram_best.argtypes = [pointer, pointer, number, number, *[pointer] * 3]
    loaded.ngram_draw.argtypes = [pointer, number, *[pointer] * 3, number, *[pointer] * 3]
    loaded.ngram_rows.argtypes = [pointer, number, pointer, pointer]
    loaded.ngram_step.argtypes = [pointer, number, *[pointer] * 4]
    loaded.ngram_matched.argtypes = [pointer, number, pointer, pointer]
    for name in ("contexts", "nodes", "rows", "step", "matched", "log_probs", "best", "draw"):
        getattr(loaded, f"ngram_{name}").restype = None
    loaded.sampled_room.argtypes, loaded.sampled_room.restype = [pointer], number
    loaded.sampled_cost.argtypes, loaded.sampled_cost.restype = [pointer], ctypes.c_double
    loaded.end_in_a_line.argtypes, loaded.end_in_a_line.restype = [], None
    loaded.use_threads(_threads())
    return loaded


# Looked up once: a step of a model asks for some thirty addresses.
_addressof, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer


def address(x: np.ndarray) -> int:
    """Return the memory address of an array, faster than `x.ctypes`."""
    try:
        return _addressof(_from_buffer(x))
    except (TypeError, ValueError):  # read only, empty, or not in one piece
        return x.ctypes.data


def use_threads() -> None:
    """Set the library's number of threads from the environment."""
    if (loaded := library()) is not None:
        loaded.use_threads(_threads())


def _threads() -> int:
    first = os.environ.get(THREADS, "").partition(",")[0].strip()
    return int(first) if first.isdecimal() else 1


if __name__ == "__main__":
    compile_all()
