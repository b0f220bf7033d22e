"""Hyperparameter search: trials are trained in turn, and the best settings are saved."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from seqgen import registry
from seqgen.engines.precision import choose_device
from seqgen.errors import Interrupted, SeqgenError, UsageError, first_line, ran_out_of_memory
from seqgen.files import write_bytes
from seqgen.interrupts import ending_as_ctrl_c
from seqgen.plugins.tune.storage import StudyStorage
from seqgen.plugins.tune.study import (
    BEST,
    MODEL,
    Space,
    Study,
    Trial,
    TrialRecord,
    architectures_of,
    check_space,
    suggested_space,
)
from seqgen.settings import Dimension, flatten_settings, require
from seqgen.settings.training import BUDGETS
from seqgen.store.manifest import digest_of
from seqgen.text.reading import text_files
from seqgen.training.events import Event, Report, Validated
from seqgen.training.plan import Plan, plan_of, preset_of
from seqgen.training.run import Diverged
from seqgen.training.session import TrainingResult
from seqgen.training.train import ReadyRun, RunRequest, prepare_run, train
from seqgen.wording import ShortRepr


def write_best(
    path: Path,
    best: TrialRecord,
    settings: Mapping[str, Any],
    budget: Mapping[str, Any],
    seed: int,
    unit: str,
) -> None:
    """Write the settings of the best trial to a TOML file.

    Args:
        path: of the file.
        best: the trial.
        settings: all of its settings, but those of its budget and of the machine.
        budget: of the trial.
        seed: of its training.
        unit: what its loss is per.
    """
    given = ", ".join(f"--{name} {value:g}" for name, value in budget.items())
    lines = [
        f"# Trial {best.trial} of seqgen tune: {best.val_loss:.4f} nats per {unit} on the held-out",
        f"# part, with {given} --seed {seed}.",
    ]
    found = {name: value for name, value in settings.items() if name in best.settings}
    others = {name: value for name, value in settings.items() if name not in best.settings}
    about = {name: others.pop(name) for name in ("architecture", "preset") if name in others}
    lines += [*map(_assignment, about.items())]
    lines += ["", "# Found by the search.", *map(_assignment, found.items())]
    if others:
        heading = "# Given, or chosen for the time of a trial: delete a line to have it chosen anew"
        lines += ["", heading, *map(_assignment, others.items())]
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def _assignment(setting: tuple[str, Any]) -> str:
    name, value = setting
    # TOML knows no null; "none" is what settings read. All else it writes as JSON does.
    value = _typed("none" if value is None else value)
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


def _typed(value: Any) -> Any:
    """Parse a text given with `--set` to a number or boolean, if it is one."""
    if not isinstance(value, str):
        return value
    try:
        read = json.loads(value)
    except ValueError:
        return value
    return read if isinstance(read, int | float) else value


GO_ON = "give the same command again to go on"
# A trial's parts at which it is compared with others.
TENTHS = 10
# So many trials in a row that cannot be trained are enough.
MOST_FAILURES = 20
# Settings that depend on the machine: `train` chooses them anew.
OF_MACHINE = ("precision", "compile", "row_threads", "validate_every", "seed")


class _Pruned(Exception):  # noqa: N818
    """Error: a trial was pruned because others were better at the same point."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TuningResult(ShortRepr):
    """Last record of `seqgen tune --json`; its keys in order.

    `recipe_val_loss` is that of trial 0, which has the settings that `train` would choose.
    """

    best: int
    settings: dict[str, Any]
    val_loss: float
    importance: dict[str, float]
    recipe_val_loss: float | None
    trials: int
    name: str
    path: str
    config: str


@dataclass(frozen=True, kw_only=True)
class Tuning(RunRequest):
    """Hyperparameter search; the settings of the request apply to all trials.

    Attributes:
        device: auto, cpu, cuda or mps.
        searched: the values of each setting that is searched; if there is none, what the
            architecture suggests.
        sampler: "tpe" or "random".
        budget: of each trial: `minutes` or `steps`.
        storage: where the study is kept.
        seed: of what is tried and of all trainings.
        report: takes events of preparing.
    """

    device: str = "auto"
    searched: Mapping[str, Dimension] = field(default_factory=dict)
    sampler: str = "tpe"
    budget: Mapping[str, Any]
    storage: StudyStorage
    seed: int
    report: Report = lambda event: None

    @ending_as_ctrl_c()
    def run(
        self, trials: int | None, minutes: float | None, ended: Callable[[TrialRecord], None]
    ) -> TuningResult:
        """Train trials until there are enough, or the time is up.

        Args:
            trials: how many there are to be in the study; None for any number.
            minutes: for how long this process begins trials that are likely to end in time.
            ended: takes the record of each trial: of those before, and of this process's own.

        Raises:
            Interrupted: says how to go on.
            UsageError: a setting is unknown or wrong, or the study has other ones.
            SeqgenError: the data cannot be read, or no trial was trained to its end.
        """
        began = time.monotonic()
        _ = self.space  # refused before any trial, where it is wrong
        reported = set()
        for record in self.study.records():
            reported.add(record.trial)
            ended(record)
        failures = 0
        while (record := self._next(trials or 1 << 62)) is not None:
            reported.add(record.trial)
            ended(record)
            failures = failures + 1 if record.stopped == "failed" else 0
            if failures == MOST_FAILURES:
                raise SeqgenError(f"{failures} trials in a row failed; the last: {record.error}")
            if not self._has_time(began, minutes):
                break
        for record in self.study.records():
            if record.trial not in reported:  # of another process
                ended(record)
        return self._result()

    @cached_property
    def study(self) -> Study:
        """Study of the search, created or continued."""
        facts = {"seed": self.seed, "budget": dict(self.budget)}
        return Study.open(self.storage, self._about(), facts)

    def _about(self) -> dict[str, Any]:
        """List the facts that must stay the same when a study continues, by their description."""
        plans = self._plans
        return {
            "data": [digest_of(path) for path in self._files],
            "architectures": list(plans),
            "settings": {
                "config": dict(self.config),
                "preset": self.preset,
                **{name: value for name, value in self.settings.items() if name != "seed"},
            },
            "values to search": {name: str(values) for name, values in self._checked.items()},
            "samplers": self.sampler,
            "budgets of a trial": dict(self.budget),
        }

    @property
    def _files(self) -> tuple[Path, ...]:
        """All files of the data, as it is read."""
        as_text = next(iter(self._plans.values())).data.as_text
        return text_files([*self.data, *self.targets], as_text)

    @cached_property
    def _plans(self) -> dict[str, Plan]:
        """Training plans by architecture, made before any data is read."""
        given = {**self.settings, **self.budget}
        for name in self.searched:
            require(name not in self.settings, f"{name} is both searched and given")
        plans = {}
        for architecture in architectures_of(self.searched, self.architecture):
            beneath = preset_of(self.preset, architecture, self.config)
            plan = plan_of(architecture, beneath, given, self.config, list(given), self.task)
            _require_comparable(plan)
            plans[plan.architecture] = plan
        return plans

    @cached_property
    def _checked(self) -> Space:
        """Search space given by the user, checked; empty for the suggested one."""
        return check_space(self.searched, self._plans)

    @property
    def unit(self) -> str:
        """Unit of the losses, "token" or "label"; the same for all architectures."""
        return registry.unit_of(self._first)

    @property
    def _first(self) -> str:
        """Architecture of trial 0: the default one if it is searched, else the first."""
        names = list(self._plans)
        return registry.DEFAULT if registry.DEFAULT in names else names[0]

    @cached_property
    def space(self) -> Space:
        """Search space: the dimension of each searched setting."""
        if self._checked:
            return self._checked
        given = self._plans[self._first].given
        return suggested_space(self._first, given, self._base(self._first)["values"])

    @property
    def recipe(self) -> dict[str, Any]:
        """Values that `train` would choose for the searched settings."""
        values = {**self._base(self._first)["values"], MODEL: self._first}
        return {name: values[name] for name in self.space}

    def _base(self, architecture: str) -> dict[str, Any]:
        """Read or compute the settings that `train` would choose; computed once per study.

        Returns:
            `chosen`: the settings that are chosen, for data, machine and budget; `values`: all
            settings of model and training.
        """
        known = self.study.base(architecture)
        return known or self.study.keep_base(architecture, self._choose(architecture))

    def _choose(self, architecture: str) -> dict[str, Any]:
        plan = self._plans[architecture]
        named = None if architecture in self.searched else self.architecture
        settings = {**self.settings, **self.budget, "seed": self.study.seed}
        request = replace(self, architecture=named or plan.architecture, settings=settings)
        ready = prepare_run(request, choose_device(self.device), self.report)
        # Of what is never cut into windows their length is only estimated.
        left_out = ("seed", *plan.task.meaningless)
        before = {**plan.model, **plan.training.to_dict(), **plan.data.to_dict()}
        model = ready.plan.model_config(ready.prepared.vocab_sizes, ready.training.seq_len)
        return {
            "chosen": {
                name: value
                for name, value in _all_settings(ready).items()
                if name not in left_out and (name not in before or before[name] != value)
            },
            "values": {**ready.training.to_dict(), **model.to_dict()},
        }

    def _has_time(self, began: float, minutes: float | None) -> bool:
        """Check whether another trial is likely to end in time."""
        if minutes is None:
            return True
        taken = (r.seconds for r in self.study.records() if r.is_complete)
        trial = max(60 * self.budget.get("minutes", 0.0), *taken, 0.0)
        return time.monotonic() - began + trial <= 60 * minutes

    def _next(self, most: int) -> TrialRecord | None:
        """Train the next trial; None if there are enough."""
        with self.study.begin(self.space, self.recipe, most) as trial:
            if trial is None:
                return None
            settings = self._settings(trial)
            record = self._trained(trial, settings)
            kept = {k: v for k, v in settings.items() if k not in OF_MACHINE}
            given = {k: v for k, v in self.settings.items() if k not in BUDGETS}
            self.study.end(trial, record, {**kept, **given})
            return record

    def _settings(self, trial: Trial) -> dict[str, Any]:
        """Build a trial's settings in the form of a configuration file."""
        values = dict(trial.values)
        architecture = values.pop(MODEL, self._first)
        row = registry.architecture(architecture)
        about = {"architecture": architecture}
        if preset := self.preset or self.config.get("preset"):
            about["preset"] = preset
        given = {**flatten_settings(self.config, row.load_config()), **self.settings}
        given = {name: value for name, value in given.items() if name not in BUDGETS}
        return about | self._base(architecture)["chosen"] | given | values | self._validations()

    def _validations(self) -> dict[str, int]:
        """Set how often later trials validate, from the number of steps of the first."""
        first = next(iter(self.study.records()), None)
        if "minutes" not in self.budget or first is None or not first.steps:
            return {}
        return {"validate_every": max(1, first.steps // TENTHS)}

    def _trained(self, trial: Trial, settings: Mapping[str, Any]) -> TrialRecord:
        """Train a trial, and record its result."""
        began, losses = time.monotonic(), []

        def record(stopped: str, loss: float | None, **fields: Any) -> TrialRecord:
            seconds = time.monotonic() - began
            what = {"trial": trial.index, "settings": trial.values, "seconds": seconds}
            return TrialRecord(**what, val_loss=loss, stopped=stopped, **fields)

        def watch(event: Event) -> None:
            if isinstance(event, Validated):
                losses.append(event.val_loss)
                tenth = self._tenth(event)
                if 0 < tenth < TENTHS and trial.should_stop(event.val_loss, tenth):
                    raise _Pruned

        try:
            result = self._train(trial, settings, watch)
        except _Pruned:
            return record("pruned", min(losses))
        except Diverged as error:
            return record("diverged", min(losses, default=None), error=str(error))
        except UsageError as error:  # settings that contradict one another
            return record("failed", None, error=str(error))
        except (RuntimeError, MemoryError) as error:
            if not ran_out_of_memory(error):
                raise
            return record("failed", None, error=f"out of memory: {first_line(error)}")
        return record(
            str(result.stopped), result.val_loss, steps=result.steps, parameters=result.parameters
        )

    def _train(self, trial: Trial, settings: Mapping[str, Any], watch: Report) -> TrainingResult:
        """Train a model in the folder of a trial."""
        try:
            result = train(
                self.data,
                targets=self.targets,
                task=self.task,
                config={**settings, **self.budget, "seed": self.study.seed},
                settings={k: v for k, v in self.settings.items() if k in settings},
                device=self.device,
                folder=trial.folder,
                scores_all=True,
                report=watch,
            )
        except (KeyboardInterrupt, Interrupted):
            raise Interrupted(self._stopped(trial)) from None
        if result.stopped == "interrupted":
            raise Interrupted(self._stopped(trial))
        return result

    def _stopped(self, trial: Trial) -> str:
        return f"stopped in trial {trial.index}, and all trials before are kept; {GO_ON}"

    def _tenth(self, event: Validated) -> int:
        """Compute the tenths of its budget that a trial has spent at a validation."""
        if "steps" in self.budget:
            return TENTHS * event.step // self.budget["steps"]
        return int(TENTHS * event.seconds / (60 * self.budget["minutes"]))

    def _result(self) -> TuningResult:
        """Select the best trial, and save its settings.

        Raises:
            SeqgenError: there is none.
        """
        study = self.study
        records = study.records()
        whole = [record for record in records if record.is_complete]
        if not whole:
            why = next((f": {record.error}" for record in records if record.error), "")
            raise SeqgenError(f"no trial was trained to its end{why}; {GO_ON}")
        best = min(whole, key=lambda record: record.val_loss)
        path = study.folder / BEST
        settings = study.settings_of(best.trial)
        write_best(path, best, settings, self.budget, study.seed, self.unit)
        return TuningResult(
            best=best.trial,
            settings=best.settings,
            val_loss=best.val_loss,
            importance=study.importance(list(self.space)),
            recipe_val_loss=next((r.val_loss for r in whole if r.trial == 0), None),
            trials=len(records),
            name=study.storage.name,
            path=study.storage.place,
            config=str(path),
        )


def _all_settings(ready: ReadyRun) -> dict[str, Any]:
    """Collect all settings of a run: model, training and data."""
    return {**ready.plan.model, **ready.training.to_dict(), **ready.plan.data.to_dict()}


def _require_comparable(plan: Plan) -> None:
    """Raise an error for plans whose trials have no comparable losses.

    Raises:
        UsageError: says why.
    """
    require(plan.data.val != "none", "tune compares validation losses: no --val none")
    mixes = plan.training.with_ngram is not None
    require(not mixes, "with_ngram has no meaning: tune compares models alone")
