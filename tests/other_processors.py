"""Run the fast tests as other processors would: `python tests/other_processors.py`.

PyTorch, oneDNN, MKL and the kernels choose instructions by what the processor has, and each choice
rounds in another way. Environment variables make them choose as on other machines, so a test that
holds only by the luck of one machine's rounding fails in one of these runs. All of them take ten
times as long as the fast tests.

    python tests/other_processors.py                           # all settings, all fast tests
    python tests/other_processors.py SEQGEN_NATIVE=0           # one setting
    python tests/other_processors.py -- -n 1 tests/models      # arguments of pytest

A setting that asks for more than the processor has changes nothing; for less, it always does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = (
    "OMP_NUM_THREADS=1",
    "OMP_NUM_THREADS=2",
    "SEQGEN_NATIVE=avx2",
    "SEQGEN_NATIVE=0",
    "ATEN_CPU_CAPABILITY=default",
    "ATEN_CPU_CAPABILITY=avx2",
    "DNNL_MAX_CPU_ISA=SSE41",
    "DNNL_MAX_CPU_ISA=AVX2",
    "MKL_CBWR=COMPATIBLE",
    "MKL_CBWR=",
)


def main() -> int:
    """Run the tests under the settings that are named; returns an exit code."""
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    asked, of_pytest = arguments[:at] or list(SETTINGS), arguments[at + 1 :] or ["-n", "2"]
    if wrong := [setting for setting in asked if setting not in SETTINGS]:
        print(f"no such setting: {', '.join(wrong)}; there are {', '.join(SETTINGS)}")  # noqa: T201
        return 2
    failed = [setting for setting in asked if not passes(setting, of_pytest)]
    for setting in failed:
        print(f"tests fail: {setting}")  # noqa: T201
    return bool(failed)


def passes(setting: str, of_pytest: list[str]) -> bool:
    """Return whether the tests pass under a setting, with one thread if it does not say."""
    print(f"== {setting}", flush=True)  # noqa: T201
    name, _, value = setting.partition("=")
    others = {each.partition("=")[0] for each in SETTINGS}
    environment = {key: told for key, told in os.environ.items() if key not in others}
    environment |= {"OMP_NUM_THREADS": "1"} | ({name: value} if value else {})
    command = [sys.executable, "-m", "pytest", "-q", *of_pytest]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
