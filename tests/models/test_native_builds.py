"""The kernels as other compilers and machines run them, beside a plain build for this one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from seqgen.engines.native import library as native

DRIVER = Path(__file__).with_name("every_kernel.c")
NOT_OF_THIS_PROCESSOR = 77
# What compiles, with which options, and what runs the program.
BUILDS = {
    "unoptimised": ([], ("-O0",), []),
    **{level: ([], options, []) for level, options in native.LEVELS.items()},
    "musl": (["musl-gcc", "-static"], (), []),
    "arm64": (["aarch64-linux-gnu-gcc", "-static"], (), ["qemu-aarch64"]),
}


def printed(folder, command, options, runner):
    """Return the lines that a build prints, each as its name and its numbers."""
    for needed in filter(None, (command[0], *runner)):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    program = folder / "every_kernel"
    flags = [flag for flag in native.FLAGS if flag not in ("-shared", "-fPIC")]
    source = [f'-DKERNELS="{native.SOURCE}"', f"-DMARK={native.source_checksum(native.SOURCE)}u"]
    how = [*flags, *native.OPTIMISED, *options, *source, DRIVER, "-lm", "-o", program]
    subprocess.run([*command, *how], check=True)
    done = subprocess.run([*runner, program], capture_output=True, text=True, check=False)
    if done.returncode == NOT_OF_THIS_PROCESSOR:
        pytest.skip("not of this processor")
    assert done.returncode == 0, done.stderr
    names, numbers = zip(*(line.split(" ", 1) for line in done.stdout.splitlines()), strict=True)
    return names, [np.array(line.split(), float) for line in numbers]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """What a plain build for this machine prints."""
    if native.compiler() is None:
        pytest.skip("there is no C compiler")
    return printed(tmp_path_factory.mktemp("plain"), native.compiler(), (), [])


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
def test_every_build_computes_the_same(build, wanted, tmp_path):
    """Also by several threads: the second half of the lines are theirs, and equal to the bit."""
    command, options, runner = BUILDS[build]
    names, found = printed(tmp_path, command or native.compiler(), options, runner)
    half = len(found) // 2
    assert names == wanted[0] and names[:half] == names[half:] and len(set(names)) > 10
    for name, ours, theirs, by_threads in zip(
        names[:half], found[:half], wanted[1][:half], found[half:], strict=True
    ):
        assert np.isfinite(theirs).all()
        tolerance = 1e-6 * max(1, abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=tolerance, err_msg=name)
        assert (ours == by_threads).all()
