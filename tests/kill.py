"""Kill commands with SIGKILL at random moments, and look at what is left of the models.

    python tests/kill.py [KILLS] [--seed SEED]

Half of the kills come by the clock, at any moment of a command; the other half just before a file
operation of it (an open, a rename, a deletion, a lock ...), so that the shortest moments between
two of them are met as often as the long ones. After each kill every model that was there before
must be there, load, and be either what it was or a trained new one; none that is listed may be
untrained, or impossible to resume; and the next command on the same name must not be refused. Ends
with one line of figures, and with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file

from seqgen import registry, store
from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.store import StoredModel
from seqgen.store.loading import load
from seqgen.training import session

TEXT = "so it goes on and on, and it ends so.\n" * 12
NAMES = ("a", "b", "c")
STEPS = 6
BUDGET = ["--steps", str(STEPS), "--checkpoint-every", "2", "--set", "validate_every=3"]
SHAPE = ["--hidden-size", "4", "--layers", "1", "--seq-len", "6", "--batch-size", "2"]
TRAINING = [*BUDGET, *SHAPE, "--seed", "1", "--precision", "float32", "--quiet"]
ARCHITECTURES = ("lstm", "gru", "ngram", "auto")
TOKENS = torch.tensor([[5, 6, 7, 8]])
# What a command does to files, as Python's audit events call it.
FILE_EVENTS = {"open", "fcntl.flock"}
FILE_EVENTS |= {f"os.{name}" for name in ("rename", "remove", "mkdir", "rmdir", "link", "chmod")}
# One command in so many is left to end.
SPARED = 10


@dataclass(frozen=True)
class Command:
    """A command on one model.

    Attributes:
        kind: what the figures call it.
        name: the model.
        arguments: of the command line.
        to: what it is renamed to, if it is.
    """

    kind: str
    name: str
    arguments: list[str]
    to: str | None = None

    @property
    def key(self) -> str:
        """The command without names: equal ones take about as long."""
        return " ".join([self.kind, *(a for a in self.arguments if a not in NAMES)])


@dataclass(frozen=True)
class Seen:
    """A model as it is found: what it says, and the step it would go on from.

    Attributes:
        logits: after some tokens.
        step: of its checkpoint, or None.
        finished: whether its training has come to its end.
    """

    logits: tuple[float, ...]
    step: int | None
    finished: bool


@dataclass
class Figures:
    """What was found."""

    kills: Counter[str] = field(default_factory=Counter)
    ended: int = 0
    swapped: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Range:
    """How long a command takes: what moments there are to kill it at."""

    seconds: float
    operations: int


class Killing:
    """A home of models, and commands on them that are killed.

    Args:
        home: where models are kept.
        seed: of all draws.
    """

    def __init__(self, home: Path, seed: int) -> None:
        self.home, self.draw, self.figures = home, random.Random(seed), Figures()
        self.text, self.arpa = home.parent / "text.txt", home.parent / "model.arpa"
        self.hf = home.parent / "hf"  # a folder of Hugging Face
        self.text.write_text(TEXT)
        self.ranges: dict[str, Range] = {}
        self.untrained: list[dict[str, torch.Tensor]] = []
        self.bystanders: dict[str, Seen] = {}
        self.known: dict[tuple, Seen] = {}

    def prepare(self) -> None:
        """Train what stands by, find out how long commands take and what untrained models are."""
        for architecture in ("lstm", "gru"):
            with self._catching_the_untrained():
                self._must(["train", str(self.text), "--model", architecture, *TRAINING])
        for architecture in ARCHITECTURES:
            name = f"bystander-{architecture}"
            self._must(self._train(architecture, name))
        self._must(["export", "bystander-ngram", "--out", str(self.arpa), "--quiet"])
        if importlib.util.find_spec("tokenizers") is not None:
            small = ["--model", "transformer", "--tokenizer", "byte", "--name", "t", "--heads", "1"]
            self._must(["train", str(self.text), *small, *TRAINING])
            self._must(["export", "t", "--format", "hf", "--out", str(self.hf), "--quiet"])
            self._must(["models", "remove", "t", "--yes", "--quiet"])
            # And what importing loads is loaded, for all copies of this process.
            self._must(["import", str(self.hf), "--name", "bystander-hf", "--quiet"])
        self.bystanders = self.look()
        gc.freeze()  # a collection in a copy of this process would copy all of it

    def _must(self, arguments: list[str]) -> None:
        assert run(arguments) == 0, arguments

    @contextlib.contextmanager
    def _catching_the_untrained(self) -> Iterator[None]:
        """Keep the weights that training begins with."""
        begin = session.Session.run

        def caught(own: session.Session, *arguments: object) -> session.TrainingResult:
            weights = own.loaded.model.state_dict()
            self.untrained.append({name: tensor.clone() for name, tensor in weights.items()})
            return begin(own, *arguments)

        session.Session.run = caught
        try:
            yield
        finally:
            session.Session.run = begin

    def _train(self, architecture: str, name: str) -> list[str]:
        shape = ["--order", "2", "--quiet"] if architecture == "ngram" else TRAINING
        return ["train", str(self.text), "--model", architecture, "--name", name, *shape]

    def look(self) -> dict[str, Seen]:
        """Return all that is listed; note what does not load, and what is untrained."""
        return {model.name: self._seen(model) for model in store.list_models()}

    def _seen(self, stored: StoredModel) -> Seen:
        """Return what a model says; it is asked again when any of its files is another."""
        files = (path for path in sorted(stored.path.rglob("*")) if path.name != store.LOCK)
        stats = ((path, path.stat().st_ino, path.stat().st_mtime_ns) for path in files)
        key = stored.name, *stats
        if key not in self.known:
            self.known[key] = self._asked(stored)
        return self.known[key]

    def _asked(self, stored: StoredModel) -> Seen:
        try:
            loaded = load(stored.path)
            stored.check()
        except SeqgenError as error:
            self._note(f"{stored.name} is listed and does not load: {error}")
            return Seen((), None, False)
        weights = load_file(stored.path / store.WEIGHTS)
        for before in self.untrained:
            same = weights.keys() == before.keys()
            if same and all(torch.equal(weights[key], before[key]) for key in weights):
                self._note(f"{stored.name} is listed and untrained")
        with torch.no_grad():
            logits = loaded.model(TOKENS)[0].double().flatten().tolist()
        step = None
        with contextlib.suppress(SeqgenError):
            step = stored.read_checkpoint()[1]["run"]["step"]
        if step is None and self._is_trained_in_steps(stored):
            self._note(f"{stored.name} is listed and cannot be resumed")
        return Seen(tuple(logits), step, step is None or step >= STEPS)

    def _is_trained_in_steps(self, stored: StoredModel) -> bool:
        if (stored.is_mixture and stored.ngram is None) or "imported" in stored.record:
            return False
        return registry.architecture(stored.config["architecture"]).estimator is None

    def _note(self, problem: str) -> None:
        self.figures.wrong.append(problem)
        print(f"wrong: {problem}", flush=True)  # noqa: T201

    def next_command(self, there: dict[str, Seen]) -> Command:
        """Draw a command that must be able to do its work."""
        name = self.draw.choice(NAMES)
        free = [other for other in NAMES if other not in there]
        hf = ["import hf"] if self.hf.exists() else []
        kinds = ["train", "train", "import", "mix", *hf]
        if name in there:
            kinds = [f"{kind} --overwrite" for kind in ("train", *kinds)]
            kinds += ["remove", *(["rename"] * 2 if free else [])]
            if not there[name].finished:
                kinds = ["train --resume"] * 3 + ["train --overwrite", *kinds[-1:]]
        kind = self.draw.choice(kinds)
        overwrite = ["--overwrite"] if "--overwrite" in kind else []
        if kind == "rename":
            to = self.draw.choice(free)
            return Command(kind, name, ["models", "rename", name, to, "--quiet"], to)
        if kind.startswith("import"):
            file = self.hf if "hf" in kind else self.arpa
            arguments = ["import", str(file), "--name", name, "--quiet", *overwrite]
        elif kind.startswith("mix"):
            arguments = ["mix", "bystander-lstm", "bystander-gru", "--weights", "0.4,0.6"]
            arguments += [
                "--name",
                name,
                "--quiet",
                *overwrite,
                *self.draw.choice([[], ["--copy"]]),
            ]
        elif kind == "remove":
            arguments = ["models", "remove", name, "--yes"]
        elif kind == "train --resume":
            arguments = ["train", "--resume", name, "--quiet"]
        else:
            arguments = [*self._train(self.draw.choice(ARCHITECTURES), name), *overwrite]
            if "--steps" in arguments and self.draw.random() < 0.5:  # something to resume
                arguments = [*arguments, "--stop-after", "2"]
        return Command(kind, name, arguments)

    def go(self, kills: int) -> None:
        """Run commands until so many have been killed."""
        there = self.look()
        while self.figures.kills.total() < kills:
            command = self.next_command(there)
            key = command.key
            spared = key not in self.ranges or self.draw.randrange(SPARED) == 0
            status = self._spared(command, key) if spared else self._killed(command, key)
            if os.WIFSIGNALED(status):
                self.figures.kills[command.kind] += 1
            elif os.WEXITSTATUS(status):
                said = self._said.read_text()
                self._note(f"{command.kind} of {command.name} was refused: {said}")
                return
            else:
                self.figures.ended += 1
            now = self.look()
            self._compare(command, there, now, os.WIFSIGNALED(status))
            there = now

    def _spared(self, command: Command, key: str) -> int:
        """Let a command end, and measure it."""
        reader, writer = os.pipe()
        began = time.monotonic()
        status = self._wait(self._start(command, lambda: _count_operations(writer)))
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            self.ranges[key] = Range(time.monotonic() - began, len(file.read()))
        return status

    def _killed(self, command: Command, key: str) -> int:
        """Kill a command by the clock, or before one of its file operations."""
        known = self.ranges[key]
        if self.draw.random() < 0.5:
            at = self.draw.randint(1, known.operations)
            return self._wait(self._start(command, lambda: _die_before_operation(at)))
        process = self._start(command, lambda: None)
        time.sleep(self.draw.uniform(0, known.seconds))
        os.kill(process, signal.SIGKILL)  # it is not waited for yet, so that it is still ours
        return self._wait(process)

    def _wait(self, process: int) -> int:
        return os.waitpid(process, 0)[1]

    @property
    def _said(self) -> Path:
        return self.home.parent / "said.txt"

    def _start(self, command: Command, before: Callable[[], None]) -> int:
        """Run a command in a copy of this process, which has torch loaded."""
        process = os.fork()
        if process:
            return process
        said = os.open(self._said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(said, stream)
        code = 70
        try:
            before()
            code = run(command.arguments)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def _compare(
        self, command: Command, before: dict[str, Seen], now: dict[str, Seen], killed: bool
    ) -> None:
        """Note what is not as it must be after a command."""
        own = command.name
        for name in before.keys() - {own}:
            if now.get(name) != before[name]:
                self._note(f"{command.kind} of {own} has changed {name}")
        if now.keys() - before.keys() - {own, command.to}:
            self._note(f"{command.kind} of {own} has made {now.keys() - before.keys()}")
        if command.to is not None:
            there = [name for name in (own, command.to) if now.get(name) == before[own]]
            if len(there) != 1 or (there == [own] and not killed):
                self._note(f"rename of {own} to {command.to} has left {there}")
            self.figures.swapped += killed and there == [command.to]
            return
        if own in before and own not in now and command.kind != "remove":
            self._note(f"{command.kind} has lost {own}")
        if not killed and (own in now) == (command.kind == "remove"):
            self._note(f"{command.kind} of {own} has ended and not done its work")
        if own in before and own in now and before[own] != now[own]:
            self.figures.swapped += killed
            if command.kind == "remove":
                self._note(f"remove has changed {own}")
        if command.kind == "train --resume" and own in now:
            if (now[own].step or 0) < (before[own].step or 0):
                self._note(f"{own} has gone back from step {before[own].step} to {now[own].step}")
            if not killed and not now[own].finished:
                self._note(f"{own} was resumed and has not finished")

    def tidy(self) -> None:
        """Clear up, and note what stays of killed runs."""
        self._must(["models", "cache", "--clear"])
        for name, seen in self.bystanders.items():
            if self.look().get(name) != seen:
                self._note(f"{name}, which nobody touched, is another one")
        for path in store.models_folder().glob(".*"):
            files = " ".join(str(file.relative_to(path)) for file in path.rglob("*"))
            self._note(f"left over: {path.name} with {files or 'nothing'}")

    def summary(self) -> str:
        """Return the figures in one line."""
        kills = self.figures.kills
        parts = ", ".join(f"{count} {kind}" for kind, count in sorted(kills.items()))
        return (
            f"{kills.total()} SIGKILLs ({parts}; {self.figures.swapped} after the swap or a step; "
            f"{self.figures.ended} commands ended): {len(self.figures.wrong)} models lost, "
            "untrained, unusable, impossible to resume, or names blocked"
        )


def _count_operations(writer: int) -> None:
    """Write a byte for each file operation from now on."""
    sys.addaudithook(lambda event, _: event in FILE_EVENTS and os.write(writer, b"."))


def _die_before_operation(at: int) -> None:
    """End this process before its file operation `at`, counted from 1."""
    left = at

    def hook(event: str, _: object) -> None:
        nonlocal left
        if event not in FILE_EVENTS:
            return
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def main() -> int:
    """Kill as often as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kills", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # a copy of a process has no threads
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    session.SAMPLE_TOKENS = 4
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        os.environ["SEQGEN_HOME"] = str(home)
        killing = Killing(home, options.seed)
        killing.prepare()
        killing.go(options.kills)
        killing.tidy()
    print(killing.summary())  # noqa: T201
    return 1 if killing.figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
