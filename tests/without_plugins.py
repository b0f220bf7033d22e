"""Run the fast tests where plugins are missing: `python tests/without_plugins.py`.

Each time, the checkout is copied without the folders of some plugins and their tests, and the fast
tests run there. Those of the pages (`tests/docs`) do not: the pages describe the whole package.

    python tests/without_plugins.py --together          # the core's tests, without any plugin
    python tests/without_plugins.py --alone             # each plugin's tests, without all others
    python tests/without_plugins.py                     # all tests, without each plugin in turn
    python tests/without_plugins.py labels vectors      # without one, then without the other
    python tests/without_plugins.py --alone labels      # the tests of one
    python tests/without_plugins.py serve -- tests/cli  # arguments of pytest

No plugin imports another (`tests/test_layers.py`), so `--together` and `--alone` cover the deletion
of any folder: what is left then are the core, whose tests pass without any plugin, and other
plugins, whose tests pass without that one. Both together take about as long as the fast tests;
leaving out each plugin in turn takes as long as the fast tests for each of them. It would also find
two plugins that only work if a third one is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="plugins, by default all")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--together", action="store_true", help="leave all of them out at once")
    which.add_argument("--alone", action="store_true", help="leave all others out, for each")
    parser.add_argument("-n", "--processes", default="2", help="processes of pytest")
    options = parser.parse_args(own)
    if unknown := {*options.names} - {*known}:
        parser.error(f"no such plugin: {', '.join(sorted(unknown))}")
    names = options.names or known
    trials = [Trial(f"without {name}", [name]) for name in names]
    if options.together:
        trials = [Trial(f"without {', '.join(names)}", names)]
    elif options.alone:
        tested = [name for name in names if (ROOT / TESTS / name).exists()]
        trials = [
            Trial(f"{name} alone", [other for other in known if other != name], str(TESTS / name))
            for name in tested
        ]
    of_pytest = ["-n", options.processes, *of_pytest]
    failed = [trial.title for trial in trials if not trial.passes(of_pytest)]
    for title in failed:
        print(f"tests fail: {title}")  # noqa: T201
    return bool(failed)


def _divided(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before and after `--`."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


@dataclass(frozen=True)
class Trial:
    """A copy of the checkout in which tests run.

    Attributes:
        title: what is printed above it.
        left_out: the plugins that the copy does not have.
        tests: the folder of the tests that run; "" for all.
    """

    title: str
    left_out: Sequence[str]
    tests: str = ""

    def passes(self, of_pytest: Sequence[str]) -> bool:
        """Return whether the tests pass in the copy."""
        print(f"== {self.title}", flush=True)  # noqa: T201
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, ROOT.name)
            shutil.copytree(ROOT, copy, ignore=LEFT_BEHIND)
            for name in self.left_out:
                shutil.rmtree(copy / PLUGINS / name)
                shutil.rmtree(copy / TESTS / name, ignore_errors=True)

            which = [self.tests] if self.tests else ["--ignore", "tests/docs"]
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", *which, *of_pytest],
                cwd=copy,
                env={**os.environ, "PYTHONPATH": str(copy)},
            )
        return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
