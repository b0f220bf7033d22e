"""The trained model that a command reads with, and the machine it works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from seqgen.cli.process import MOST_THREADS
from seqgen.configs.decoding import LookOptions, WritingOptions
from seqgen.configs.options import (
    MACHINE,
    MODEL,
    PRECISIONS,
    READING_PRECISIONS,
    TEXT,
    Options,
    choice,
    group,
    with_default,
)
from seqgen.configs.scoring import CacheOptions
from seqgen.configs.settings import MOST_SEED, setting

if TYPE_CHECKING:
    from seqgen.commands.loaded import LoadedModel


@dataclass(frozen=True, kw_only=True)
class Threads(Options):
    """How many processor cores a command takes."""

    threads: int | None = setting(
        "Number of CPU threads.",
        None,
        low=1,
        high=MOST_THREADS,
        panel=MACHINE,
        without="one per core",
        reads="threads",
    )


@dataclass(frozen=True, kw_only=True)
class Device(Threads):
    """Where to compute."""

    device: str = setting(
        "Where to compute; auto uses a GPU if there is one.",
        "auto",
        panel=MACHINE,
        metavar="auto|cpu|cuda|mps",
        completes="devices",
        common=True,
    )


@dataclass(frozen=True, kw_only=True)
class ExactMachine(Device):
    """Where to compute, and in which floating-point numbers."""

    formats: ClassVar[tuple[str, ...]] = PRECISIONS
    precision: str = setting(
        "Number format: auto, float32, float64 or bf16.",
        "auto",
        panel=MACHINE,
        metavar="KIND",
        completes="precisions",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("--precision", self.precision, self.formats)


@dataclass(frozen=True, kw_only=True)
class Machine(ExactMachine):
    """Where to compute, and in which numbers; matrices may be reduced to bf16 or int8."""

    formats: ClassVar[tuple[str, ...]] = READING_PRECISIONS
    precision: str = setting(
        "Number format: auto (float32), float32, float64, or for matrices bf16 or int8.",
        "auto",
        panel=MACHINE,
        metavar="KIND",
        completes="reading precisions",
    )


@dataclass(frozen=True, kw_only=True)
class BatchSize(Options):
    """How many texts are scored side by side."""

    batch_size: int = with_default(WritingOptions, "batch_size", 32)


@dataclass(frozen=True, kw_only=True)
class ModelNames(Options):
    """The trained models that a command measures."""

    model: tuple[str, ...] = setting(
        "Trained model: a name or a path. A+B mixes several. Repeat the option to compare models.",
        (),
        names=("--model", "-m"),
        panel=MODEL,
        without="the latest",
        completes="models",
        common=True,
    )

    @property
    def names(self) -> Sequence[str | None]:
        """The names; None for the latest model."""
        return self.model or (None,)


@dataclass(frozen=True, kw_only=True)
class ModelName(Options):
    """The trained model that a command reads."""

    model: str | None = setting(
        "Trained model: a name or a path. A+B or A:0.7+B:0.3 mixes several.",
        None,
        names=("--model", "-m"),
        panel=MODEL,
        without="the latest",
        completes="models",
        common=True,
    )


@dataclass(frozen=True, kw_only=True)
class StoredName(Options):
    """The model that a command is about."""

    name: str | None = setting(
        "Trained model: a name or a path; the latest if none is given.",
        None,
        metavar="[NAME]",
        completes="models",
        positional=True,
    )


@dataclass(frozen=True, kw_only=True)
class FixedSeed(Options):
    """The seed of a command whose figures are compared between runs."""

    seed: int = setting(
        "Random seed; fixed by default, so that figures can be compared.",
        0,
        low=0,
        high=MOST_SEED,
        panel=MACHINE,
        common=True,
    )


@dataclass(frozen=True, kw_only=True)
class ReadModel(ModelName):
    """The trained model that a command writes or scores with."""

    looked_up: CacheOptions = group(CacheOptions)
    label: tuple[str, ...] = setting(
        "Of a model trained with --labels: the label of the text; give it again for a text with "
        "several.",
        (),
        metavar="NAME",
        panel=TEXT,
        common=True,
    )
    machine: Machine = group(Machine)

    def load(self, of_source: LookOptions, rows: int, max_tokens: int) -> LoadedModel:
        """Return the model, with its cache and the labels of its texts.

        Args:
            of_source: what is asked of a model that writes from sources, which others refuse
                before they are loaded.
            rows: how many texts are written side by side.
            max_tokens: at most so many tokens of each.

        Raises:
            SeqgenError: there is none, or it cannot be loaded.
            UsageError: it needs a label and none is given, or the other way round.
        """
        from seqgen.commands.loading import Work, load
        from seqgen.commands.writing.from_source import check_stored

        machine = self.machine
        looked_up = self.looked_up.config
        check_stored(of_source, self.model)
        work = Work(rows=rows, written=rows * max_tokens)
        loaded = load(self.model, machine.device, machine.precision, looked_up, work)
        loaded = loaded.with_labels(self.label)
        loaded.given.require_chosen()
        return loaded
