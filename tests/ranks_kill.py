"""Kill, interrupt and time runs on two processes, and look at what is left.

    python tests/ranks_kill.py [--kills 10] [--interrupts 20] [--minutes 20] [--seed 1]

Each kill sends SIGKILL to one of two ranks at a random moment of a run under torchrun: all must end
within 40 seconds, the model must load if it is there, and the run must go on, on two processes to
the very weights of a run that was not killed, and on one process. Each interrupt sends SIGINT to
torchrun at a random moment, and each timed run has a budget of some seconds: none may hang. Moments
count from when torchrun has started the ranks, for while it loads PyTorch it may lose a signal.
Ends with one line of figures, and with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

TEXT = "so it goes on and on, and it ends so.\n" * 40
SHAPE = ["--hidden-size", "8", "--layers", "1", "--seq-len", "8", "--batch-size", "4"]
SETTINGS = [*SHAPE, "--dropout", "0.2", "--seed", "1", "--precision", "float32", "--quiet"]
STEPS, MOST_SECONDS = 400, 40.0


class Trials:
    """Runs under torchrun in a home of their own.

    Args:
        folder: for the home and the text.
        seed: of the moments.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw, self.wrong = folder, random.Random(seed), []
        self.slowest = 0.0  # seconds from a kill or an interrupt to the end
        self.text = folder / "text.txt"
        self.text.write_text(TEXT)
        self.environment = {**os.environ, "SEQGEN_HOME": str(folder / "home")}
        self.environment |= {"OMP_NUM_THREADS": "1"}

    def command(self, processes: int, *arguments: str) -> list[str]:
        """Return the command line of `seqgen` on so many processes."""
        alone = [sys.executable, "-m", "seqgen", *arguments]
        if processes == 1:
            return alone
        launcher = [sys.executable, "-m", "torch.distributed.run"]
        return [*launcher, "--nproc-per-node", str(processes), "-m", "seqgen", *arguments]

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a run on two processes."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        return subprocess.Popen(self.command(2, *arguments), env=self.environment, **quiet)

    def train(self, name: str, *budget: str) -> list[str]:
        """Return the arguments of a new run."""
        where = ["--name", name, "--checkpoint-every", "50"]
        return ["train", str(self.text), "--model", "gru", *where, *budget, *SETTINGS]

    def weights(self, name: str) -> dict[str, torch.Tensor]:
        """Return the weights in a model's last checkpoint."""
        file = self.folder / "home" / "models" / name / "checkpoints" / "last.safetensors"
        return {key: x for key, x in load_file(file).items() if key.startswith("model.")}

    def started(self, process: subprocess.Popen[bytes]) -> list[int]:
        """Wait until torchrun has started both ranks, or has ended; return their numbers."""
        while len(ranks := children(process.pid)) < 2 and process.poll() is None:
            time.sleep(0.05)
        return ranks

    def ended(self, process: subprocess.Popen[bytes], within: float, what: str) -> str:
        """Wait for a run; return what it wrote to standard error."""
        began = time.monotonic()
        try:
            said = process.communicate(timeout=within)[1].decode()
            if not what.startswith(("whole", "timed")):
                self.slowest = max(self.slowest, time.monotonic() - began)
            return said
        except subprocess.TimeoutExpired:
            self.wrong.append(f"{what}: hangs")
            process.kill()
            return ""

    def resumed(self, name: str, processes: int) -> bool:
        """Go on with a run to its end; return whether that worked."""
        command = self.command(processes, "train", "--resume", name, "--quiet")
        return subprocess.run(command, env=self.environment, capture_output=True).returncode == 0

    def kill(self, number: int, seconds: float, whole: dict[str, torch.Tensor]) -> bool:
        """Kill a rank at a random moment; return whether there was something to go on with."""
        name = f"killed-{number}"
        process = self.begin(*self.train(name, "--steps", str(STEPS)))
        ranks = self.started(process)
        moment = self.draw.uniform(0.2, 1.0)
        time.sleep(moment * seconds)
        victim = self.draw.choice(ranks)
        with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(victim, signal.SIGKILL)
        said = self.ended(process, MOST_SECONDS, name)
        model = self.folder / "home" / "models" / name
        if not (model / "checkpoints" / "last.safetensors").exists():
            return False
        if process.returncode and f"received by PID {victim}" not in said:
            self.wrong.append(
                f"{name}: torchrun does not name the rank, killed at {moment:.0%} of the run"
            )
        copy = model.with_name(f"{name}-alone")
        shutil.copytree(model, copy)
        for folder, processes in ((model, 2), (copy, 1)):
            if not self.resumed(folder.name, processes):
                self.wrong.append(f"{folder.name}: does not go on with {processes}")
        again = self.weights(name)
        if any(not torch.equal(x, again[key]) for key, x in whole.items()):
            self.wrong.append(f"{name}: other weights")
        return True

    def interrupt(self, number: int) -> None:
        """Interrupt a run at a random moment."""
        name = f"interrupted-{number}"
        process = self.begin(*self.train(name, "--minutes", "2"))
        self.started(process)
        time.sleep(self.draw.uniform(0.0, 30.0))
        process.send_signal(signal.SIGINT)
        self.ended(process, 60.0, name)

    def timed(self, number: int) -> None:
        """Train for some seconds."""
        name, minutes = f"timed-{number}", self.draw.uniform(0.01, 0.1)
        process = self.begin(*self.train(name, "--minutes", f"{minutes:.3f}"))
        said = self.ended(process, 180.0, name)
        if process.returncode:
            self.wrong.append(f"{name}: {said.strip().splitlines()[:1]}")


def children(process: int) -> list[int]:
    """Return the ranks that torchrun has started; it also starts short-lived processes."""
    ranks = ["pgrep", "-P", str(process), "-f", "seqgen train"]
    listed = subprocess.run(ranks, capture_output=True, text=True)
    return [int(number) for number in listed.stdout.split()]


def main() -> int:
    """Run the trials that are asked for."""
    parser = argparse.ArgumentParser()
    for name, number in (("kills", 10), ("interrupts", 20), ("minutes", 20), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=number)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trials, going = Trials(Path(folder), given.seed), 0
        if given.kills:
            process = trials.begin(*trials.train("whole", "--steps", str(STEPS)))
            trials.started(process)
            began = time.monotonic()
            trials.ended(process, 600.0, "whole")
            seconds, whole = time.monotonic() - began, trials.weights("whole")
            going = sum(trials.kill(number, seconds, whole) for number in range(given.kills))
        for number in range(given.interrupts):
            trials.interrupt(number)
        for number in range(given.minutes):
            trials.timed(number)
    for line in trials.wrong:
        sys.stdout.write(line + "\n")
    asked = f"{given.kills} kills ({going} went on), {given.interrupts} interrupts"
    asked += f", {given.minutes} timed runs"
    wrong = len(trials.wrong)
    sys.stdout.write(f"{asked}: {wrong} wrong, the slowest end after {trials.slowest:.1f} s\n")
    return 1 if trials.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
