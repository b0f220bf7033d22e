"""The wheels, built and installed by name as a user would; see `wheels.py`."""

import subprocess
import sys

import pytest
import wheels
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


@pytest.mark.parametrize(
    ("pythons", "failed", "skip_missing", "code", "said"),
    [
        ({"3.10": "python"}, [], False, 0, "tried      3.10\n"),
        ({"3.10": "python"}, ["3.10"], False, 1, "FAILED     3.10\n"),
        ({"3.10": "python", "3.99": None}, [], False, 1, "NOT TRIED  3.99: "),
        ({"3.10": "python", "3.99": None}, [], True, 0, "NOT TRIED  3.99: "),
        ({"3.99": None}, [], True, 1, "tried      none\n"),
    ],
)
def test_a_missing_python_is_a_failure(pythons, failed, skip_missing, code, said, capsys):
    assert wheels.conclude(pythons, failed, skip_missing=skip_missing) == code
    assert said in capsys.readouterr().out
