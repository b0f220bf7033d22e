"""Compiling `kernels.c`: where a package is built (`hatch_build.py`), and by hand.

`python -m seqgen.engines.native.compiling` compiles it where it lies, once for each level of
processor. It imports nothing of the package, for it runs before that is installed.
"""

from __future__ import annotations

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
        *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mfma"),
        "-mprefer-vector-width=512",
    ),
    "avx2": ("-mavx2", "-mfma"),
}
IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
LEVELS: dict[str, tuple[str, ...]] = X86_LEVELS if IS_X86 else {"plain": ()}
# Not `.so`: what walks the modules of a package would take that for one.
LIBRARIES = {level: SOURCE.with_name(f"kernels-{level}.so.1") for level in LEVELS}


def mark_of(source: Path) -> int:
    """Return a number that differs for other sources; a library knows that of its own."""
    return zlib.crc32(source.read_bytes())


def compiler() -> list[str] | None:
    """Return the command of a C compiler: $CC's, Python's own, or one that is there."""
    for name in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        command = shlex.split(name or "")
        if command and shutil.which(command[0]):
            return command
    return None


def compile_all() -> list[Path]:
    """Compile the kernels where they lie for all levels that the compiler knows, and return them.

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
    """Compile the kernels.

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
        how = [*FLAGS, *level, *options, f"-DMARK={mark_of(SOURCE)}u", str(SOURCE), "-lm"]
        done = subprocess.run(
            [*command, *how, "-o", str(made)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            reason = done.stderr.strip().partition("\n")[0]
            raise OSError(f"{command[0]} fails: {reason}")
        made.replace(target)


if __name__ == "__main__":
    compile_all()
