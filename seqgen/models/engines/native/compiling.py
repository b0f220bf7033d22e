"""Compiling `kernels.c`: where a package is built (`hatch_build.py`), and by hand.

`python -m seqgen.models.engines.native.compiling` compiles it where it lies. It imports nothing of
the package, for it runs before that is installed.
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
# Not `.so`: what walks the modules of a package would take that for one.
LIBRARY = SOURCE.with_suffix(".so.1")
# No flag that lets sums be added up in another order than the one that is written.
FLAGS = (
    *("-std=gnu11", "-shared", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Wno-psabi"),
    *("-fno-math-errno", "-fno-trapping-math"),
)
OPTIMISED = ("-O2", "-ftree-vectorize")
OF_MACHINE = dict.fromkeys(("x86_64", "amd64"), ("-mavx2", "-mfma"))


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


def compile_kernels(target: Path, options: Sequence[str] = OPTIMISED) -> None:
    """Compile the kernels for this kind of machine.

    Args:
        target: the library to be written.
        options: the compiler's, beside those that are always given.

    Raises:
        OSError: there is no compiler, or it fails.
    """
    command = compiler()
    if command is None:
        raise OSError("there is no C compiler")
    kind = OF_MACHINE.get(platform.machine().lower(), ())
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        how = [*FLAGS, *kind, *options, f"-DMARK={mark_of(SOURCE)}u", str(SOURCE), "-lm"]
        done = subprocess.run(
            [*command, *how, "-o", str(made)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            reason = done.stderr.strip().partition("\n")[0]
            raise OSError(f"{command[0]} fails: {reason}")
        made.replace(target)


if __name__ == "__main__":
    compile_kernels(LIBRARY)
