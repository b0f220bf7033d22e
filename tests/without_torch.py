"""Commands run where importing PyTorch fails, and their answers beside those of PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from places import STORED, TESTS

BLOCKED = """
import json, sys
sys.modules["torch"] = None  # so that importing it fails
from stored_answers import records
for command in json.loads(sys.argv[1]):
    print(json.dumps(records(*command)))
"""


def without_torch(commands):
    """Return the records of commands in a process in which importing PyTorch fails."""
    search = os.pathsep.join([str(TESTS), str(STORED), *sys.path])
    ran = subprocess.run(
        [sys.executable, "-c", BLOCKED, json.dumps(commands)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": search},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return [json.loads(line) for line in ran.stdout.splitlines()]


def assert_alike(found, wanted):
    """Hold records of float32 to those of float64: texts are equal, numbers but for rounding."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            if key not in ("seconds", "precision", "protocol", "signature"):
                assert_alike(found[key], wanted[key])
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_alike(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=2e-5, abs=1e-6)
    else:
        assert found == wanted
