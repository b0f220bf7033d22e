"""The wheels, built and installed by name as a user would; see `wheels.py`."""

import subprocess
import sys

import pytest
from places import TESTS


@pytest.mark.long
def test_the_wheel_with_kernels_is_installed_by_name():
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    done = subprocess.run(
        [
            *(sys.executable, TESTS / "packaging" / "wheels.py"),
            *("--pythons", python, "--installers", "uv", "--wheels", "compiled"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installed in" in done.stdout, done.stdout
    assert "kernels loaded" in done.stdout
