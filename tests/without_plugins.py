"""Run the fast tests without each plugin in turn: `python tests/without_plugins.py`.

Each time, the checkout is copied without the plugin's folder and its tests, and the fast tests of
the core and of all other plugins run there. Those of the pages (`tests/docs`) do not: the pages
describe the whole package.

    python tests/without_plugins.py labels vectors      # without one, then without the other
    python tests/without_plugins.py --together          # without any plugin
    python tests/without_plugins.py serve -- tests/cli  # arguments of pytest
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = Path("seqgen", "plugins")
TESTS = Path("tests", "plugins")
# What no test reads, besides what begins with a dot.
LEFT_BEHIND = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")


def main() -> int:
    """Run the tests without the plugins that are named; returns an exit code."""
    own, of_pytest = _divided(sys.argv[1:])
    known = sorted(path.parent.name for path in (ROOT / PLUGINS).glob("*/__init__.py"))
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("names", nargs="*", metavar="NAME", help="plugins, by default all")
    parser.add_argument("--together", action="store_true", help="leave all of them out at once")
    parser.add_argument("-n", "--processes", default="2", help="processes of pytest")
    options = parser.parse_args(own)
    if unknown := {*options.names} - {*known}:
        parser.error(f"no such plugin: {', '.join(sorted(unknown))}")
    names = options.names or known
    failed = [
        left_out
        for left_out in ([names] if options.together else [[name] for name in names])
        if not passes_without(left_out, ["-n", options.processes, *of_pytest])
    ]
    for left_out in failed:
        print(f"tests fail without {', '.join(left_out)}")  # noqa: T201
    return bool(failed)


def _divided(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before and after `--`."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def passes_without(names: Iterable[str], of_pytest: list[str]) -> bool:
    """Return whether the tests pass in a copy of the checkout without some plugins."""
    names = list(names)
    print(f"== without {', '.join(names)}", flush=True)  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, ROOT.name)
        shutil.copytree(ROOT, copy, ignore=LEFT_BEHIND)
        for name in names:
            shutil.rmtree(copy / PLUGINS / name)
            shutil.rmtree(copy / TESTS / name, ignore_errors=True)

        called = [sys.executable, "-m", "pytest", "-q", "--ignore", "tests/docs", *of_pytest]
        done = subprocess.run(
            called,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
        )
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
