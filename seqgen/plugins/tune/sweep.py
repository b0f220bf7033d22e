"""Sweep: several architectures at several parameter counts, each trained on one budget."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from seqgen import registry, store
from seqgen.engines.precision import choose_device
from seqgen.errors import Interrupted
from seqgen.settings import require
from seqgen.settings.training import FINISHED
from seqgen.training.events import Report
from seqgen.training.plan import Plan, plan_of
from seqgen.training.resume import resume
from seqgen.training.run import Diverged
from seqgen.training.session import TrainingResult
from seqgen.training.train import RunRequest, prepare_plan, solve_width, train
from seqgen.training.width_search import WIDTH, prepare_width_search

GO_ON = "give the same command again to go on"
# Characters of the text's name that the names of its models begin with.
LONGEST_STEM = 60


@dataclass(frozen=True)
class SweepCell:
    """One model of a sweep.

    Attributes:
        architecture: its name.
        target_parameters: how many parameters were asked for.
        seed: of its training.
        hidden_size: the width that gives about so many.
        name: of the stored model.
    """

    architecture: str
    target_parameters: int
    seed: int
    hidden_size: int
    name: str


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """Record of `seqgen sweep --json`; its keys in order.

    `error` says why training failed; the figures are then null.
    """

    name: str
    architecture: str
    target_parameters: int
    parameters: int | None = None
    hidden_size: int
    seed: int
    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    tokens_per_second: float | None = None
    val_loss: float | None = None
    val_bits_per_char: float | None = None
    val_bits_per_byte: float | None = None
    stopped: str | None = None
    error: str | None = None
    val_oov_bits_per_byte: float | None = None


@dataclass(frozen=True)
class Sweep:
    """Grid of trainings: every architecture at every size with every seed.

    Attributes:
        data: files, as `train` takes them.
        architectures: their names.
        parameters: how many each is to have.
        seeds: of the trainings.
        settings: of all of them: the budget, and others.
        device: auto, cpu, cuda or mps.
    """

    data: Sequence[str | Path]
    architectures: Sequence[str]
    parameters: Sequence[int]
    seeds: Sequence[int] = (1,)
    settings: Mapping[str, Any] = field(default_factory=dict)
    device: str = "auto"

    @cached_property
    def cells(self) -> list[SweepCell]:
        """Plan the models, by size and then seed, without training.

        Raises:
            UsageError: an architecture is unknown, has no width, or reads something else than
                the others; a setting is wrong; or no width has so many parameters.
            SeqgenError: the data cannot be read.
        """
        place = choose_device(self.device)
        plans = self._plans()
        first = next(iter(plans.values()))
        request = RunRequest(data=self.data, settings=self.settings)
        prepared, _ = prepare_plan(first, request, lambda event: None)
        mark = self._mark(prepared.facts.sha256, prepared.val_facts.sha256)
        widths = {
            (name, count): solve_width(plan, prepared, count, place).model[WIDTH]
            for count in sorted(set(self.parameters))
            for name, plan in plans.items()
        }
        return [
            SweepCell(name, count, seed, width, self._name(name, count, seed, mark))
            for seed in dict.fromkeys(self.seeds)
            for (name, count), width in widths.items()
        ]

    def _plans(self) -> dict[str, Plan]:
        rows = {name: registry.architecture(name) for name in self.architectures}
        for name, row in rows.items():
            require(row.estimator is None, f"{name} is counted, and has no width to choose")
        kinds = {row.task: name for name, row in rows.items()}
        require(
            len(kinds) == 1,
            f"{' and '.join(kinds.values())} learn from different data: sweep them apart",
        )
        flags = [name for name, value in self.settings.items() if value is not None]
        plans = {}
        for name in rows:
            plan = plan_of(name, None, self.settings, {}, flags)
            plans[name] = prepare_width_search(plan, flags)
            require(plan.data.val != "none", "a sweep compares by held-out text: no --val none")
        return plans

    def _mark(self, *text_hashes: str) -> str:
        """Hash the texts and settings, so that another budget makes another sweep."""
        about = json.dumps([text_hashes, dict(self.settings)], sort_keys=True)
        return hashlib.sha256(about.encode()).hexdigest()[:6]

    def _name(self, architecture: str, count: int, seed: int, mark: str) -> str:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(self.data[0]).stem).strip("-._") or "text"
        stem = stem[:LONGEST_STEM]
        return f"{stem}-{architecture}-{_short(count)}-seed{seed}-{mark}"

    def finished(self, cell: SweepCell) -> SweepRecord | None:
        """Read the record of a completely trained model; None otherwise."""
        if store.is_free(cell.name):
            return None
        result = store.result_of(store.find(cell.name))
        if not result or result["stopped"] not in FINISHED:
            return None
        return _record(cell, TrainingResult(**result))

    def train(self, cell: SweepCell, report: Report) -> SweepRecord:
        """Train a model, or resume an interrupted run.

        A run that was killed before its first checkpoint begins again.

        Raises:
            Interrupted: says how to go on.
            SeqgenError: another run is training it, or it cannot be written.
        """
        try:
            if _can_go_on(cell.name):
                result = resume(
                    cell.name,
                    data=self.data,
                    device=self.device,
                    scores_all=True,
                    report=report,
                )
            else:
                result = train(
                    self.data,
                    architecture=cell.architecture,
                    name=cell.name,
                    settings={**self.settings, "seed": cell.seed},
                    parameters=cell.target_parameters,
                    overwrite=True,
                    scores_all=True,
                    device=self.device,
                    report=report,
                )
        except Diverged as error:
            return SweepRecord(**asdict(cell), stopped="failed", error=str(error))
        except (KeyboardInterrupt, Interrupted):
            raise Interrupted(f"stopped before {cell.name} was saved; {GO_ON}") from None
        if result.stopped == "interrupted":
            raise Interrupted(f"stopped in {cell.name} at step {result.steps:,}; {GO_ON}")
        return _record(cell, result)


def _short(count: int) -> str:
    """Abbreviate a count for a model's name: 100000 is 100k, 1500000 is 1500k."""
    for unit, size in (("m", 10**6), ("k", 10**3)):
        if count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def _can_go_on(name: str) -> bool:
    """Check whether a model of this name has a checkpoint, damaged or not."""
    return not store.is_free(name) and any((store.find(name).path / store.CHECKPOINTS).glob("*"))


def _record(cell: SweepCell, result: TrainingResult) -> SweepRecord:
    names = SweepRecord.__dataclass_fields__.keys() - {"error", *asdict(cell)}
    return SweepRecord(**asdict(cell), **{name: getattr(result, name) for name in names})
