"""The script for a GPU, tried without one: tiny sizes, the same steps."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from places import ROOT, TESTS

from gpu import __main__ as check
from gpu.steps import STEPS, Step

BY_NAME = {step.name: step for step in STEPS}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "tests of CUDA"])
def test_a_step_finds_figures(name):
    found = BY_NAME[name].run()
    if name.startswith("training"):
        assert found["ratio"] > 0
        assert 0 < found["share_of_matmul_speed"] < 2
        assert all(row["least"] <= row["tokens_per_second"] for row in found["ours"].values())
    elif name.startswith("decoding"):
        assert found["ours"] > 0
    elif name.startswith("launches"):
        assert all(row["most_on_host"] for row in found.values())
    elif name.startswith("resuming"):
        for kind in ("lstm", "transformer"):
            assert found[f"{kind}, resumed weights equal"]
            assert found[f"{kind}, equal texts of 20"] == 20
    else:
        assert 0 < found["val_loss"] < 10


def test_a_call_goes_on_where_the_last_one_ended(tmp_path, monkeypatch):
    ran = []

    def one(step, limit):
        ran.append(step.name)
        return {"error": "cut off"} if step.name == "b" and len(ran) < 3 else {"figure": limit}

    monkeypatch.setattr(check, "_run_one", one)
    steps = [Step(name, dict, 5, 20) for name in "ab"] + [Step("c", dict, 99, 100)]
    results = check.run(tmp_path, 50, steps)
    assert ran == ["a", "b"]  # c needs more seconds than there are
    assert results["steps"]["a"] == {"figure": 20}
    assert json.loads((tmp_path / "gpu.json").read_text()) == results
    results = check.run(tmp_path, 200, steps)
    assert ran == ["a", "b", "b", "c"]
    assert not any("error" in found for found in results["steps"].values())


def test_what_another_device_found_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "_run_one", lambda step, limit: {"figure": limit})
    machine = {"device": "another", "commit": "0123abcd-dirty"}
    other = {"machine": machine, "steps": {"a": {"figure": 0}}}
    (tmp_path / "gpu.json").write_text(json.dumps(other))
    results = check.run(tmp_path, 50, [Step("a", dict, 5, 20)])
    assert results["steps"] == {"a": {"figure": 20}}
    assert json.loads((tmp_path / "gpu-0123abcd-dirty.json").read_text()) == other


def test_a_step_that_fails_or_hangs_is_noted(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, TESTS))))
    gone = check._run_one(Step("no such step", dict, 0, 60), 60)
    assert "no such step" in gone["error"]
    hung = check._run_one(STEPS[0], 0.01)
    assert hung["error"] == "not done in 0 s"


@pytest.mark.slow
def test_the_script_as_it_is_called(tmp_path):
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", "tests/gpu/check.sh", tmp_path / "out dir", "4"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "left for another call" in done.stdout
    assert not (tmp_path / "out dir/gpu.json").exists()


@pytest.mark.parametrize("damaged", ["{bad", "{}", "[]", '{"machine": 1, "steps": 2}', "\x00"])
def test_a_damaged_file_of_results_is_begun_anew(tmp_path, monkeypatch, damaged):
    monkeypatch.setattr(check, "_run_one", lambda step, limit: {"figure": limit})
    (tmp_path / "gpu.json").write_text(damaged)
    results = check.run(tmp_path, 50, [Step("a", dict, 5, 20)])
    assert results["steps"] == {"a": {"figure": 20}}
    assert json.loads((tmp_path / "gpu.json").read_text()) == results


def test_a_step_that_takes_too_long_ends_with_what_it_has_started(tmp_path, monkeypatch):
    slow = tmp_path / "python"
    slow.write_text(f"#!/bin/sh\nsleep 300 &\necho $! > {tmp_path}/child\nwait\n")
    slow.chmod(0o755)
    monkeypatch.setattr(check.sys, "executable", str(slow))
    found = check._run_one(Step("a", dict, 1, 9), 5.0)
    assert found["error"] == "not done in 5 s"
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 60
    while _runs(child):  # what is killed may be on its way out
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(process: int) -> bool:
    """Check whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False
