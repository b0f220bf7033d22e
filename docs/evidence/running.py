"""What scripts share that make tables by running seqgen: commands, and rows that are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Figures = dict[str, Any]


def run(folder: Path, arguments: str, text: str | None = None) -> tuple[str, float]:
    """Run a seqgen command in a folder, whose `home` holds the models.

    Returns:
        What it wrote to standard output, and the processor time that it took in seconds.
    """
    sys.stderr.write(f"seqgen {arguments}\n")
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "SEQGEN_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = root
    before = os.times()
    command = [sys.executable, "-m", "seqgen", *arguments.split()]
    done = subprocess.run(
        command,
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=folder,
    )
    after = os.times()
    if done.returncode != 0:
        raise SystemExit(f"seqgen {arguments} ended with exit code {done.returncode}")
    used = after.children_user + after.children_system
    return done.stdout, used - before.children_user - before.children_system


def records(output: str) -> list[dict[str, Any]]:
    """Read JSON Lines."""
    return [json.loads(line) for line in output.splitlines()]


def kept(path: Path, make: Callable[[], Figures]) -> Figures:
    """Return a row: the one in a file, or a new one that is then stored there."""
    if not path.exists():
        path.with_suffix(".new").write_text(json.dumps(make()), encoding="utf-8")
        path.with_suffix(".new").rename(path)
    return json.loads(path.read_text(encoding="utf-8"))


def line(cells: Iterable[str]) -> None:
    """Print a line of a Markdown table."""
    sys.stdout.write("| " + " | ".join(cells) + " |\n")
    sys.stdout.flush()
