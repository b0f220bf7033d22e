"""Run the steps one after another, each in a process of its own, and keep what they find.

A step that fails or takes too long is noted, and the next one runs. All results are in one JSON
file, which is written anew after every step: `machine`, and a record for each step, with what it
found or its error, and its seconds. Steps that have a result for the same commit and device are
not run again; the results of another commit or device are kept in a file beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpu.steps import STEPS, Step, machine


def run(out: Path, seconds: float, steps: list[Step]) -> dict[str, Any]:
    """Run the steps that have no result yet, as far as the seconds go; return all results."""
    place, began = out / "gpu.json", time.monotonic()
    results: dict[str, Any] = {"machine": machine(), "steps": {}}
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # none, or damaged
        before = json.loads(place.read_text())
        if before["machine"] != results["machine"]:
            place.replace(out / f"gpu-{before['machine']['commit']}.json")
        elif isinstance(before["steps"], dict):
            results = before
    for step in steps:
        found = results["steps"].get(step.name)
        left = seconds - (time.monotonic() - began)
        if found is not None and "error" not in found:
            continue
        if left < step.least_seconds:
            print(f"{step.name}: left for another call, {left:.0f} s are too few", flush=True)
            continue
        results["steps"][step.name] = _run_one(step, min(left, step.most_seconds))
        place.with_suffix(".new").write_text(json.dumps(results, indent=1))
        place.with_suffix(".new").replace(place)
        print(f"{step.name}: {json.dumps(results['steps'][step.name])[:2000]}", flush=True)
    return results


def _run_one(step: Step, limit: float) -> dict[str, Any]:
    began = time.monotonic()
    command = [sys.executable, "-m", "gpu", "--step", step.name]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        started = subprocess.Popen(command, stdout=said, stderr=errors, start_new_session=True)
        try:
            status = started.wait(limit)
        except subprocess.TimeoutExpired:
            result: dict[str, Any] = {"error": f"not done in {limit:.0f} s"}
        else:
            said.seek(0), errors.seek(0)
            lines = said.read().strip().splitlines()
            ended = status == 0 and bool(lines)
            result = json.loads(lines[-1]) if ended else {"error": errors.read()[-2000:]}
        finally:  # with all that it has started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    return result | {"seconds": round(time.monotonic() - began, 1)}


def main(arguments: list[str]) -> int:
    """Run all steps, or with `--step` one of them, whose result is then the last line."""
    parser = argparse.ArgumentParser(prog="python -m gpu", description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=Path("gpu-results"))
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--step", choices=[step.name for step in STEPS])
    asked = parser.parse_args(arguments)
    if asked.step is not None:
        (step,) = [step for step in STEPS if step.name == asked.step]
        print(json.dumps(step.run()))
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    results = run(asked.out, asked.seconds, STEPS)
    failed = [name for name, found in results["steps"].items() if "error" in found]
    left = [step.name for step in STEPS if step.name not in results["steps"]]
    print(
        f"failed: {', '.join(failed) or 'none'}; left for another call: {', '.join(left) or 'none'}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
