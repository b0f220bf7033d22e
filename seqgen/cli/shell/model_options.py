"""Options that choose a trained model and a device, and checks of the kind of model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING

import typer

from seqgen import store
from seqgen.cli.shell.process import MOST_THREADS
from seqgen.errors import UsageError
from seqgen.registry import load_object
from seqgen.settings import (
    MOST_SEED,
    Options,
    Panel,
    Precision,
    ReadingPrecision,
    argument,
    group,
    require,
    setting,
)
from seqgen.settings.generation import LookOptions
from seqgen.settings.options import added_options
from seqgen.settings.scoring import CacheConfig, CacheOptions

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel
    from seqgen.store.loading import Work

# How plugins view models, groups of the class `ViewOptions`.
Views = added_options("view")


class Threads(Options, panel=Panel.MACHINE):
    """Option for the number of CPU threads."""

    threads: int | None = setting(
        "Number of CPU threads.", low=1, high=MOST_THREADS, without="one per core", reads="threads"
    )


class Device(Threads, panel=Panel.MACHINE):
    """Option for the device to compute on."""

    device: str = setting(
        "Where to compute; auto uses a GPU if there is one.",
        "auto",
        metavar="auto|cpu|cuda|mps",
        completes="devices",
        common=True,
    )


class ExactMachine(Device, panel=Panel.MACHINE):
    """Options for the device and the floating-point precision."""

    precision: Precision = setting(
        "Number format: auto, float32, float64 or bf16.",
        "auto",
        metavar="KIND",
    )


class Machine(ExactMachine, panel=Panel.MACHINE):
    """Options for the device and precision, including quantization to bf16, int8 or int4."""

    precision: ReadingPrecision = setting(
        "Number format: auto (float32), float32, float64, or for matrices bf16, int8 or int4.",
        "auto",
        metavar="KIND",
    )
    views: Views = group(Views)

    def load(
        self, name: str | None, cache: CacheConfig | None = None, work: Work | None = None
    ) -> LoadedModel:
        """Load the model of a name, seen as the options of plugins say; see `loading.load`."""
        from seqgen.store.loading import load

        return load(self.seen(name), self.device, self.precision, cache, work)

    def seen(self, name: str | None) -> str | None:
        """Add the options of plugins to a model's name; see `ViewOptions`."""
        return functools.reduce(lambda known, each: each.seen(known), self.views.groups, name)


class ModelNames(Options, panel=Panel.MODEL):
    """Option for the trained models to measure."""

    model: tuple[str, ...] = setting(
        "Trained model: a name or a path. A+B mixes several; NAME:bytes sees one byte by byte. "
        "Repeat the option to compare models.",
        names=("--model", "-m"),
        without="the latest",
        completes="models",
        common=True,
    )

    @property
    def names(self) -> Sequence[str | None]:
        """Model names given; (None,) stands for the latest model."""
        return self.model or (None,)


class ModelName(Options, panel=Panel.MODEL):
    """Option for the trained model to read with."""

    model: str | None = setting(
        "Trained model: a name or a path. A+B or A:0.7+B:0.3 mixes several; NAME:bytes sees one "
        "byte by byte.",
        names=("--model", "-m"),
        without="the latest",
        completes="models",
        common=True,
    )


class StoredName(Options):
    """Argument for the stored model that a command is about."""

    name: str | None = argument(
        "Trained model: a name or a path; the latest if none is given.",
        "[NAME]",
        completes="models",
    )


class FixedSeed(Options, panel=Panel.MACHINE):
    """Option for a seed with a fixed default, so that figures are reproducible."""

    seed: int = setting(
        "Random seed; fixed by default, so that figures can be compared.",
        0,
        low=0,
        high=MOST_SEED,
        common=True,
    )


class ReadModel(ModelName, panel=Panel.TEXT):
    """Options for the trained model to generate or score with."""

    looked_up: CacheOptions = group(CacheOptions)
    label: tuple[str, ...] = setting(
        "For a model trained with --labels: the label of the text. Can be repeated.",
        metavar="NAME",
        common=True,
    )
    machine: Machine = group(Machine)

    def load(self, of_source: LookOptions, rows: int, max_tokens: int) -> LoadedModel:
        """Load the model, with its cache and the labels to condition on.

        Args:
            of_source: what is asked of a model that writes from sources, which others refuse
                before they are loaded.
            rows: how many texts are written side by side.
            max_tokens: at most so many tokens of each.

        Raises:
            SeqgenError: there is none, or it cannot be loaded.
            UsageError: it needs a label and none is given, or the other way round.
        """
        from seqgen.store.loading import Work

        for flag in of_source.given[:1]:
            stored = store.find_all(self.model)
            task = stored.task
            of_text = f"{stored.name} is a model of {task.learns.removeprefix('a ')}"
            has_sources = task.takes_targets or task.model_is is not None
            require(has_sources, f"{flag} is for models that write from sources; {of_text}")
        work = Work(rows=rows, written=rows * max_tokens)
        loaded = self.machine.load(self.model, self.looked_up.config, work).with_labels(self.label)
        loaded.conditioning.require_chosen()
        return loaded


@dataclass(frozen=True)
class CommandVariant:
    """Implementation of a command for the models of one task; see `Task.serves`.

    Attributes:
        put: does it; takes those options of the command that have a meaning.
        models: what such models are called.
    """

    put: Callable[..., None]
    models: str

    def __call__(self, context: typer.Context) -> None:
        """Do it with the options of a command.

        Raises:
            UsageError: names the first option that was given and has no meaning.
        """
        meant = signature(self.put).parameters
        for name in typed_options(context):
            if name not in meant:
                flag = name.rstrip("_").replace("_", "-")
                raise UsageError(f"--{flag} has no meaning for {self.models}")
        self.put(**{name: context.params[name] for name in meant})


def run_task_variant(context: typer.Context, names: Sequence[str | None]) -> bool:
    """Run a task's own variant of the command, if its models have one; return whether it ran.

    Args:
        context: of the command.
        names: of the models; None for the latest.

    Returns:
        Whether they were served.

    Raises:
        UsageError: they are, and others are of another kind; or an option has no meaning.
    """
    tasks = {store.find_all(name).task: name for name in names}
    ways = [task.serves[context.info_name] for task in tasks if context.info_name in task.serves]
    if ways and len(tasks) > 1:
        different = " and ".join(str(name) for name in list(tasks.values())[:2])
        raise UsageError(f"{different} are models of different kinds; measure each by itself")
    for way in ways:
        load_object(way)(context)
    return bool(ways)


def typed_options(context: typer.Context) -> list[str]:
    """List the parameters that the user typed, in the command's order."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
