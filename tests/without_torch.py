"""Commands run where importing PyTorch fails, and their answers beside those of PyTorch."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

import pytest
from places import STORED, TESTS

BLOCKED = """
import json, os, sys, traceback
sys.modules["torch"] = None  # so that importing it fails
from stored_answers import records
questions, sys.stdin = sys.stdin, open(os.devnull)  # commands read standard input
for line in questions:
    os.environ["SEQGEN_HOME"], command = json.loads(line)
    try:
        answer = [records(*command), None]
    except BaseException:
        answer = [None, traceback.format_exc()]
    print(json.dumps(answer), flush=True)
"""


@functools.cache
def blocked():
    """Start a process in which importing PyTorch fails; it answers a command a line, in turn."""
    search = os.pathsep.join([str(TESTS), str(STORED), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", BLOCKED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": search},
    )


def without_torch(commands):
    """Return the records of commands in a process in which importing PyTorch fails."""
    process, answers = blocked(), []
    for command in commands:
        print(json.dumps([os.environ["SEQGEN_HOME"], command]), file=process.stdin, flush=True)
        answer, failure = json.loads(process.stdout.readline())
        assert failure is None, failure
        answers.append(answer)
    return answers


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
