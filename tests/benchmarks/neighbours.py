"""Train in the same minutes beside other work, and see whether a run ends as it does alone.

    python -m tests.benchmarks.neighbours TEXT [--minutes 5] [--seed 1] [--only burst]

Each run has a home of its own, so that it measures the machine anew. Other work is processes that
multiply matrices. A line of JSON a run says what was chosen, and what came of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seqgen.cli.shell.output import put_record

WORK = "import numpy as n; a = n.ones((256, 256))\nwhile True: a @ a"
TRAINED = ("tokens", "val_loss", "seconds")
CHOSEN = {"model": ("num_layers", "hidden_size", "dropout"), "training": ("batch_size", "lr")}
CHOSEN["training"] += ("patience", "row_threads", "precision")


@dataclass(frozen=True)
class Neighbour:
    """Other work: processes, from and to so many seconds, or shares of the budget, after the start.

    Attributes:
        cores: how many of them are busy, as a share of the machine's.
        begin: seconds; negative for a share of the budget.
        end: seconds; None for the end of the run.
    """

    cores: float = 0.0
    begin: float = 0.0
    end: float | None = None


NEIGHBOURS = {
    "quiet": Neighbour(),
    "burst": Neighbour(cores=2.0, end=10.0),
    "one-core": Neighbour(cores=0.5),
    "slower": Neighbour(cores=1.0, begin=-0.5),
}


@contextlib.contextmanager
def busy(neighbour: Neighbour, seconds: float) -> Iterator[None]:
    """Have other work done within."""
    workers: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        count = round(neighbour.cores * (os.cpu_count() or 1))
        command = [sys.executable, "-c", WORK]
        workers.extend(subprocess.Popen(command, env=alone) for _ in range(count))

    def stop() -> None:
        while workers:
            worker = workers.pop()
            worker.kill()
            worker.wait()

    begin = neighbour.begin if neighbour.begin >= 0 else -neighbour.begin * seconds
    timers = [threading.Timer(begin, start)]
    if neighbour.end is not None:
        timers.append(threading.Timer(neighbour.end, stop))
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()
        stop()


def trained(text: Path, minutes: float, seed: int, neighbour: Neighbour) -> dict[str, object]:
    """Return what a run beside other work has chosen and reached."""
    with tempfile.TemporaryDirectory() as home, busy(neighbour, 60 * minutes):
        command = [sys.executable, "-m", "seqgen", "train", str(text), "--minutes", str(minutes)]
        command += ["--seed", str(seed), "--json", "--quiet", "--name", "x"]
        environment = {**os.environ, "SEQGEN_HOME": home}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        result = json.loads(done.stdout.splitlines()[-1])
        config = json.loads((Path(result["path"]) / "config.json").read_text(encoding="utf-8"))
    chosen = {name: config[group][name] for group, names in CHOSEN.items() for name in names}
    return {name: result[name] for name in TRAINED} | chosen


def main() -> None:
    """Train once beside each kind of neighbour."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=NEIGHBOURS)
    given = parser.parse_args()
    for name, neighbour in NEIGHBOURS.items():
        if given.only in (None, name):
            record = trained(given.text, given.minutes, given.seed, neighbour)
            put_record({"neighbour": name, **record})


if __name__ == "__main__":
    main()
