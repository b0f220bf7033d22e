"""`seqgen course`: companion to five lectures, step by step, with commands to run in each step."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.help import width_of
from seqgen.cli.shell.model_options import Threads
from seqgen.cli.shell.output import Output, put
from seqgen.errors import SeqgenError, UsageError, did_you_mean
from seqgen.settings import Options, Panel, argument, setting

HERE = Path(__file__).resolve().parent
# Of a wheel, beside this file; of a checkout, at its root.
TEXTS = (HERE / "corpora", HERE.parents[2] / "corpora")


@dataclass(frozen=True)
class CourseStep:
    """A step of the course, as read from `course.toml`.

    Attributes:
        number: part and place in it, such as 1.4.
        part: title of the part.
        title: of the step.
        slide: lecture and row that it belongs to, as in `docs/evidence/lectures.md`.
        seconds: processor time on one core of a 2020s server, with its training.
        idea: what the step shows.
        equation: as plain text.
        run: commands of `seqgen`, or `python` and a script; texts and scripts are below `corpora/`.
        see: class or function, and its file below `seqgen/`.
        shows: what to read in the output.
        exercise: what to change.
        answer: what then happens.
    """

    number: str
    part: str
    title: str
    slide: str
    seconds: int
    idea: str
    equation: str
    run: list[str]
    see: str
    shows: str
    exercise: str
    answer: str


@functools.cache
def steps() -> dict[str, CourseStep]:
    """Load all steps of the course by number, in order."""
    from seqgen.files import parse_toml

    parts = parse_toml((HERE / "course.toml").read_text(encoding="utf-8"))["part"]
    found = {}
    for i, part in enumerate(parts, start=1):
        for j, step in enumerate(part["step"], start=1):
            found[f"{i}.{j}"] = CourseStep(number=f"{i}.{j}", part=part["title"], **step)
    return found


class Lesson(Options, panel=Panel.OUTPUT):
    """Options of `seqgen course`: the step to show, and whether to run its commands."""

    step: str | None = argument(
        "Step to show and run, such as 1.4; without one, all are listed.", "[STEP]"
    )
    no_run: bool = setting("Show the commands without running them.")
    again: bool = setting("Train the models of the step again, even if they are there.")


@takes_options
def course(lesson: Lesson, threads: Threads, out: Output) -> None:
    """List the steps of a course on language models, or show one and run its commands.

    The course follows five lectures, from counts to attention. A step has an idea, an equation,
    commands that run in seconds, the class to read, and an exercise with its answer. The models of
    a step are stored under names that begin with course-; a model that is there is not trained
    again.
    """
    if lesson.step is None:
        if not out.records(asdict(step) for step in steps().values()):
            put("".join(_listed()))
        return
    step = steps().get(lesson.step)
    if step is None:
        of_part = [name for name in steps() if name.startswith(f"{lesson.step}.")]
        hint = f"; part {lesson.step} has {of_part[0]} to {of_part[-1]}" if of_part else ""
        hint = hint or did_you_mean(lesson.step, steps()) or "; seqgen course lists all"
        raise UsageError(f"the course has no step {lesson.step!r}{hint}")
    if not out.json:
        put(_described(step))
    outputs = []
    for line in step.run:
        arguments = _arguments(line)
        if not out.json:
            put(f"\n$ {shlex.join(arguments)}\n")
        if lesson.no_run:
            continue
        if not lesson.again and _is_trained(arguments):
            out.notice("(trained already; --again trains it again)")
            continue
        outputs.append(_run(arguments))
        if not out.json:
            put(outputs[-1])
    if not out.record({**asdict(step), "outputs": outputs}):
        put("\n" + "".join(_told(step)))


def _listed() -> Iterator[str]:
    """Yield the lines that list all steps."""
    part = None
    for step in steps().values():
        if step.part != part:
            yield f"{'' if part is None else chr(10)}{step.number.split('.')[0]}. {step.part}\n"
            part = step.part
        yield f"  {step.number:<4} {step.title:<58} {step.seconds:>3} s\n"
    yield "\nShow and run a step by `seqgen course 1.1`; a later run skips its training.\n"


def _wrapped(text: str, first: str = "") -> str:
    return textwrap.fill(first + text, width_of(sys.stdout), break_on_hyphens=False) + "\n"


def _described(step: CourseStep) -> str:
    """Format the part of a step that is shown before its commands."""
    equation = textwrap.indent(step.equation.strip("\n"), "    ")
    about = _wrapped(step.idea.strip()) + f"\n{equation}\n\n" + _wrapped(step.see, "Read: ")
    return f"{step.number} {step.title} (lecture {step.slide})\n\n{about}"


def _told(step: CourseStep) -> Iterator[str]:
    """Yield the part of a step that is shown after its commands: findings and exercise."""
    yield _wrapped(step.shows.strip())
    yield "\n" + _wrapped(step.exercise.strip(), "Exercise: ")
    yield "\n" + _wrapped(step.answer.strip(), "Answer: ")


def _arguments(line: str) -> list[str]:
    """Split a command line into arguments, with the paths of course texts resolved."""
    return [_text(one) if one.startswith("corpora/") else one for one in shlex.split(line)]


def _text(name: str) -> str:
    """Find a text file of the course; return its shortest path.

    Raises:
        SeqgenError: it is not installed.
    """
    for folder in TEXTS:
        path = folder / name.removeprefix("corpora/")
        if path.exists():
            return min(str(path), os.path.relpath(path), key=len)
    raise SeqgenError(f"{name} is missing from this installation")


def _is_trained(arguments: list[str]) -> bool:
    """Check whether the model that a command trains exists and has finished training."""
    from seqgen.store import StoredModel, models_folder, result_of
    from seqgen.store.finding import is_free

    if arguments[1] != "train" or is_free(name := arguments[arguments.index("--name") + 1]):
        return False
    with contextlib.suppress(SeqgenError):
        result = result_of(StoredModel(models_folder() / name))
        return bool(result) and result["stopped"] not in ("interrupted", "stop-after")
    return False


def _run(arguments: list[str]) -> str:
    """Run a command and return its output, including notices and plots.

    Raises:
        SeqgenError: it fails.
    """
    program, *rest = arguments
    if rest[0] == "train":  # a run that was killed, or another of this step, may have left one
        rest.append("--overwrite")
    command = [sys.executable, *(("-m", "seqgen") if program == "seqgen" else ()), *rest]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        why = said.strip().rpartition("\n")[2]
        raise SeqgenError(f"{program} {rest[0]} ended with exit code {done.returncode}: {why}")
    return said
