"""`seqgen tune`: search for settings with a lower validation loss."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seqgen import registry
from seqgen.cli.shell.flags import SETTING_OF, takes_options
from seqgen.cli.shell.inputs import given_or_piped
from seqgen.cli.shell.output import Output, put, say
from seqgen.cli.shell.output_files import confirm_deleting
from seqgen.cli.shell.tables import (
    declared_columns,
    duration,
    figure,
    percentage,
    put_columns,
    put_table,
)
from seqgen.cli.shell.train_options import ModelKind, MoreSettings, SeededDevice, TrainingFiles
from seqgen.plugins.tune.jobs import PRINT, check_files, put_jobs, rewrite_command
from seqgen.plugins.tune.search_space import read_search
from seqgen.settings import (
    MOST_STEPS,
    DataConfig,
    Dimension,
    OptionRule,
    Options,
    Panel,
    require,
    setting,
    settings_group,
)
from seqgen.settings.training import BUDGETS
from seqgen.training.events import Notice
from seqgen.wording import format_settings, format_value, plural

if TYPE_CHECKING:
    from seqgen.plugins.tune.study import TrialRecord
    from seqgen.plugins.tune.tune import Tuning, TuningResult

# The most trials that the table shows.
SHOWN = 20
MOST_JOBS = 10_000
# The settings of all trials that have a flag.
FIXED = ("tokenizer", "vocab_size", "documents", "labels", "val", "val_target", "as_text")
FixedSettings = settings_group(DataConfig, only=FIXED)


class Trials(Options, panel=Panel.BUDGET):
    """Number of trials in a search, and the budget of each."""

    trials: int | None = setting("Number of trials in all.", low=1, high=MOST_STEPS, common=True)
    minutes: float | None = setting(
        "Begin trials for this long; a study that is continued gets as long again.",
        low=0.001,
        common=True,
    )
    trial_minutes: float | None = setting(
        "Budget of each trial.", low=0.001, without="a thirtieth of --minutes, or 0.5"
    )
    trial_steps: int | None = setting(
        "Budget of each trial in steps instead, which does not depend on the machine's speed.",
        low=1,
        high=MOST_STEPS,
        conflicts=OptionRule(("--trial-minutes",), "give one budget of a trial"),
    )

    @property
    def budget(self) -> dict[str, float]:
        """Budget of a trial from the given flags; may be empty."""
        budget = {"minutes": self.trial_minutes, "steps": self.trial_steps}
        return {name: value for name, value in budget.items() if value is not None}


class Searched(Options, panel=Panel.SEARCH):
    """Settings to search, and the sampler."""

    search: tuple[str, ...] = setting(
        "Search for a setting: lr=1e-3:1e-1:log, dropout=0:0.5, or a list, model=gru,lstm. Can be "
        "repeated.",
        metavar="KEY=VALUES",
        without="what the architecture suggests",
        common=True,
    )
    sampler: Literal["tpe", "random"] = setting(
        "How settings are drawn: tpe learns from the trials before (Bergstra et al. 2011); random "
        "does not.",
        "tpe",
    )


NO_SEARCH = OptionRule(("DATA", "--trials", "--minutes"), "--list or --delete searches nothing")


class Studies(Options, panel=Panel.SAVING):
    """Study to create or continue, and the listing and deletion of studies."""

    name: str | None = setting(
        "Name of the study; the same name continues it.",
        metavar="NAME",
        without="made from DATA",
        common=True,
    )
    storage: str | None = setting(
        "Keep the study where workers on several machines share it: a database, as "
        "postgresql://USER@HOST/DATABASE or mysql+pymysql://..., or a journal file on a shared "
        "disk.",
        metavar="URL|PATH",
        without="a folder of this machine",
    )
    list_: bool = setting(
        "List the studies that are kept.",
        names=("--list",),
        conflicts=(OptionRule(("--delete",), "give either --list or --delete"), NO_SEARCH),
    )
    delete: tuple[str, ...] = setting(
        "Delete a study, and train nothing. Can be repeated.", metavar="NAME", conflicts=NO_SEARCH
    )
    yes: bool = setting("Do not ask before deleting.", names=("--yes", "-y"))
    print_jobs: int | None = setting(
        "Print the commands of this many workers of a cluster that share the study, and train "
        "nothing.",
        low=1,
        high=MOST_JOBS,
        panel=Panel.OUTPUT,
        conflicts=("--list", "--delete"),
    )


@takes_options
def tune(
    kind: ModelKind,
    files: TrainingFiles,
    fixed: FixedSettings,
    other_settings: MoreSettings,
    trials: Trials,
    searched: Searched,
    studies: Studies,
    machine: SeededDevice,
    out: Output,
) -> None:
    """Search for settings that train to a lower validation loss than the default recipe.

    Every trial trains under the same small budget, and is stopped early if others were better at
    the same time. Trial 0 is the default recipe. The study is kept: run the command again to
    continue it, or several times at once to work in parallel. The best settings go into best.toml,
    for train --config.
    """
    if studies.list_ or studies.delete:
        _put_studies(studies, out) if studies.list_ else _delete_studies(studies, out)
        return
    given = trials.trials is not None or trials.minutes is not None
    require(given, "give --trials N or --minutes X")
    one = kind.model != registry.AUTO
    require(one, "give one architecture; --search model=gru,lstm tries several")
    inputs = files.inputs(fixed, out)
    names = files.named()
    settings = {key: value for key, value in fixed.to_dict().items() if value is not None}
    settings |= other_settings.assigned | files.held_out(fixed, inputs)
    wrong = next((name for name in (*BUDGETS, "seed") if name in settings), None)
    require(
        wrong is None,
        f"{wrong} cannot be set for all trials: give --trial-steps or --trial-minutes, and --seed",
    )
    space = searched_by(searched.search)
    names = given_or_piped(names, "seqgen tune FILE")
    if studies.print_jobs is not None:
        check_files([*names, *files.target])
        study = studies.name or _name_of(names[0])
        job = rewrite_command({"--name": study}, without=[PRINT], switches=())
        put_jobs([job] * studies.print_jobs, f"{job} (for the table and best.toml)", out)
        return
    data = inputs.keep(names)

    from seqgen.plugins.tune.storage import open_storage
    from seqgen.plugins.tune.study import first_or_kept, require_optuna
    from seqgen.plugins.tune.tune import Tuning

    require_optuna()
    storage = open_storage(studies.name or _name_of(data[0]), studies.storage)
    most = trials.trials, trials.minutes
    budget, seed = first_or_kept(storage, trials.budget, machine.seed, *most)
    tuning = Tuning(
        data=data,
        targets=files.targets(inputs, names),
        **kind.asked,
        settings=settings,
        config=other_settings.tables,
        device=machine.device,
        searched=space,
        sampler=searched.sampler,
        budget=budget,
        storage=storage,
        seed=seed,
        report=lambda event: out.notice(event.text) if isinstance(event, Notice) else None,
    )
    with storage.reporting_errors():
        if not out.quiet:
            _introduce(tuning)
        result = tuning.run(trials.trials, trials.minutes, _taker(out, kept := [], tuning.unit))
    if out.record(result):
        return
    _put_trials(kept, result)
    if not out.quiet:
        _conclude(result, _next_command(files, kind, result), tuning.unit)


def searched_by(texts: Sequence[str]) -> dict[str, Dimension]:
    """Parse the values of `--search` into dimensions by setting.

    Raises:
        UsageError: one is wrong, or a setting is named twice.
    """
    searched: dict[str, Dimension] = {}
    for text in texts:
        name, values = read_search(text)
        name = SETTING_OF.get(name, name)
        require(name not in searched, f"--search {name} is given twice")
        searched[name] = values
    return searched


def _name_of(data: str | Path) -> str:
    """Derive the default name of a study from its data file."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(data).stem).strip("-._") or "text"
    return f"{stem}-tune"


def _introduce(tuning: Tuning) -> None:
    """Print the search space, the budget and the study's folder."""
    space = ", ".join(f"{name} {values}" for name, values in tuning.space.items())
    name, number = next(iter(tuning.budget.items()))
    budget = plural(number, name.removesuffix("s"))
    sampler = f"{tuning.sampler} sampler, seed {tuning.study.seed}"
    say(f"{tuning.storage.name}: {budget} a trial, {sampler}")
    say(f"searching {space}")
    say(f"kept in {tuning.storage.place}")


def _taker(out: Output, kept: list[TrialRecord], unit: str) -> Callable[[TrialRecord], None]:
    """Create a callback that collects the records of trials, and prints each."""

    def take(record: TrialRecord) -> None:
        kept.append(record)
        out.record(record)
        settings = format_settings(record.settings)
        out.notice(f"trial {record.trial}: {_outcome(record, unit)}; {settings}")

    return take


def _outcome(record: TrialRecord, unit: str) -> str:
    """Describe the outcome of a trial in a few words, with its loss in nats per `unit`."""
    loss = f"{figure(record.val_loss)} nats/{unit}"
    if record.is_complete:
        return f"{loss} in {duration(record.seconds)}"
    if record.stopped == "pruned":
        return f"pruned at {loss} after {duration(record.seconds)}"
    return f"{record.stopped}: {record.error}"


def _put_trials(records: Sequence[TrialRecord], result: TuningResult) -> None:
    """Print the table of the best trials, and of the importance of each setting."""
    order = sorted(
        records,
        key=lambda r: (not r.is_complete, math.inf if r.val_loss is None else r.val_loss, r.trial),
    )
    columns = declared_columns(order)
    of_settings = {
        name: lambda r, name=name: format_value(r.settings.get(name)) for name in result.settings
    }
    put_columns({"trial": columns.pop("trial"), **of_settings, **columns}, order[:SHOWN])
    if result.importance:
        put("\n")
        rows = [[name, percentage(share, 0)] for name, share in result.importance.items()]
        put_table(["setting", "importance"], rows)


def _conclude(result: TuningResult, command: str, unit: str) -> None:
    """Report whether the search beat the default recipe, and suggest the next command."""
    recipe, found = result.recipe_val_loss, result.val_loss
    best = f"trial {result.best}, {figure(found)} nats/{unit}"
    if recipe is None:
        say(f"the best is {best}; the default recipe was not trained to its end")
    elif result.best == 0:
        say(f"no trial was better than the default recipe, {best}")
    else:
        gain = percentage((recipe - found) / recipe, 1)
        say(f"the best is {best}; {gain} below the default recipe, {figure(recipe)}")
    say(f"try: {command}")


def _next_command(files: TrainingFiles, kind: ModelKind, result: TuningResult) -> str:
    """Build the command that trains on the same data with the best settings."""
    parts = ["seqgen", "train", *files.data]
    given = {
        "--source": files.source,
        "--source-vectors": (files.source_vectors,),
        "--target": files.target,
        "--task": (kind.task,),
    }
    for flag, values in given.items():
        for value in filter(None, values):
            parts += [flag, value]
    return shlex.join([*parts, "--config", result.config])


def _put_studies(studies: Studies, out: Output) -> None:
    """Print a table of all studies, or a record for each."""
    from seqgen.plugins.tune.study import kept_studies

    found = list(kept_studies(studies.storage))
    if out.records(found):
        return
    if not found:
        out.notice("there are no studies; start one: seqgen tune DATA")
        return
    put_columns(declared_columns(found), found)


def _delete_studies(studies: Studies, out: Output) -> None:
    """Delete studies after confirmation."""
    from seqgen.plugins.tune.study import check_deletable, delete_shared_study, delete_study

    names = dict.fromkeys(studies.delete)
    if studies.storage is not None:
        confirm_deleting(names, studies.yes)
        for name in names:
            place = delete_shared_study(name, studies.storage)
            out.record({"name": name, "path": place})
            out.notice(f"removed {name} from {place}")
        return
    paths = {name: check_deletable(name) for name in names}
    confirm_deleting(paths.values(), studies.yes)
    for name, path in paths.items():
        delete_study(path)
        out.record({"name": name, "path": str(path)})
        out.notice(f"removed {path}")
