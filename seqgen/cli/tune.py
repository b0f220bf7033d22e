"""`seqgen tune`: search for settings that train to a lower validation loss."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqgen import registry
from seqgen.cli import completion, options
from seqgen.cli.data_options import (
    DocumentsKind,
    HasLabels,
    TokenizerKind,
    ValTarget,
    VocabSize,
)
from seqgen.cli.help import flag, value
from seqgen.cli.inputs import Inputs, file_name, file_path, given_or_piped
from seqgen.cli.output import put, put_record, say
from seqgen.cli.pairs import SourceFile, TargetFile, check_sides
from seqgen.cli.settings import SETTING_OF, assignment
from seqgen.cli.settings import option as setting
from seqgen.cli.studies import delete_studies, put_studies
from seqgen.cli.tables import duration, figure, number, percentage, put_table
from seqgen.configs import (
    BUDGETS,
    MOST_STEPS,
    Dimension,
    choice,
    read_config,
    read_search,
    require,
)
from seqgen.configs.options import BUDGET, OPTIMISATION, SAVING, SEARCH, TEXT, WHAT
from seqgen.training.events import Event, Notice
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.commands.tuning.study import TrialRecord
    from seqgen.commands.tuning.tune import Tuning, TuningResult

# Flags of settings, as `train` has them.
SETTINGS = ("tokenizer", "vocab_size", "documents", "labels", "val", "val_target")
SAMPLERS = ("tpe", "random")
# The most trials that the table shows.
SHOWN = 20


def tune(
    context: typer.Context,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text files, folders or patterns, or one token file, as train takes them.",
            parser=file_name,
            metavar="DATA",
            show_default=False,
        ),
    ] = None,
    source: SourceFile = None,
    source_vectors: Annotated[
        str | None,
        value(
            ".npy|.safetensors",
            TEXT,
            "For pairs of vectors and texts: the vectors; needs --target.",
            default=False,
            parser=file_name,
        ),
    ] = None,
    target: TargetFile = None,
    model: Annotated[
        str | None,
        value(
            "NAME",
            WHAT,
            "Architecture; several are compared by --search model=gru,lstm.",
            default=registry.DEFAULT,
            complete=completion.architectures,
        ),
    ] = None,
    task: options.Task = None,
    preset: Annotated[
        str | None,
        value(
            "NAME",
            WHAT,
            "Begin from the settings of a known model.",
            default=False,
            complete=completion.preset_names,
        ),
    ] = None,
    tokenizer: TokenizerKind = None,
    vocab_size: VocabSize = None,
    labels: HasLabels = None,
    documents: DocumentsKind = None,
    val: Annotated[str | None, setting("val", "X|FILE", TEXT, parser=file_name)] = None,
    val_source: Annotated[
        str | None,
        value(
            "FILE",
            TEXT,
            "For pairs in two files: the held-out sources; needs --val-target.",
            default=False,
            parser=file_name,
        ),
    ] = None,
    val_target: ValTarget = None,
    trials: Annotated[
        int | None,
        value("N", BUDGET, "Number of trials in all.", default=False, min=1, max=MOST_STEPS),
    ] = None,
    minutes: Annotated[
        float | None,
        value(
            "X",
            BUDGET,
            "Begin trials for this long; a command that goes on has as long again.",
            default=False,
            min=0.001,
        ),
    ] = None,
    trial_minutes: Annotated[
        float | None,
        value(
            "X",
            BUDGET,
            "Budget of each trial.",
            default="a thirtieth of --minutes, or 0.5",
            min=0.001,
        ),
    ] = None,
    trial_steps: Annotated[
        int | None,
        value(
            "N",
            BUDGET,
            "Budget of each trial in steps instead, which does not depend on the machine's speed.",
            default=False,
            min=1,
            max=MOST_STEPS,
        ),
    ] = None,
    search: Annotated[
        list[str] | None,
        value(
            "KEY=VALUES",
            SEARCH,
            "Search a setting: lr=1e-3:1e-1:log, dropout=0:0.5, or a list, model=gru,lstm. Can be "
            "repeated.",
            default="what the architecture suggests",
        ),
    ] = None,
    sampler: Annotated[
        str,
        value(
            "|".join(SAMPLERS),
            SEARCH,
            "How settings are drawn: tpe learns from the trials before (Bergstra et al. 2011); "
            "random does not.",
            complete=completion.one_of(*SAMPLERS),
        ),
    ] = "tpe",
    config: Annotated[
        Path | None,
        value(
            "FILE",
            OPTIMISATION,
            "Read settings of all trials from a TOML file, or from a model's config.json.",
            default=False,
            parser=file_path,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        value("KEY=VALUE", OPTIMISATION, "Fix a setting, as in train.", "--set", default=False),
    ] = None,
    name: Annotated[
        str | None,
        value(
            "NAME",
            SAVING,
            "Name of the study; the same name goes on with it.",
            default="made from DATA",
        ),
    ] = None,
    list_: Annotated[bool, flag("--list", SAVING, "List the studies that are kept.")] = False,
    delete: Annotated[
        list[str] | None,
        value("NAME", SAVING, "Delete a study, and train nothing. Can be repeated.", default=False),
    ] = None,
    yes: Annotated[bool, flag("--yes", SAVING, "Do not ask before deleting.", "-y")] = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    seed: options.Seed = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Search for settings that train to a lower validation loss than the default recipe.

    Every trial trains under the same small budget, and is stopped early if others were better at
    the same time. Trial 0 is the default recipe. The study is kept: give the command again to go
    on, or twice to work on it in parallel. The best settings go into best.toml, for train --config.
    """
    if list_ or delete:
        names = "--list or --delete"
        require(not (list_ and delete), f"give either {names}")
        require(not data and trials is None and minutes is None, f"{names} searches nothing")
        put_studies(json, quiet) if list_ else delete_studies(delete, yes, json, quiet)
        return
    require(trials is not None or minutes is not None, "give --trials N or --minutes X")
    require(trial_minutes is None or trial_steps is None, "give one budget of a trial")
    require(model != registry.AUTO, "give one architecture; --search model=gru,lstm tries several")
    choice("--sampler", sampler, SAMPLERS)
    inputs = Inputs(quiet)
    tuning = _tuning(context.params, inputs, quiet)
    if not quiet:
        _introduce(tuning)
    result = tuning.run(trials, minutes, _taker(json, quiet, kept := [], tuning.unit))
    if json:
        put_record(result)
        return
    _put_trials(kept, result)
    if not quiet:
        _conclude(result, _next_command(context.params, result), tuning.unit)


def searched_by(texts: Sequence[str]) -> dict[str, Dimension]:
    """Return what several `--search` say, by setting.

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


def _tuning(given: Mapping[str, Any], inputs: Inputs, quiet: bool) -> Tuning:
    """Return the search that the command's parameters ask for."""
    source, vectors, target = given["source"], given["source_vectors"], given["target"]
    sides = source and [source], vectors, target and [target]
    check_sides(given["data"] or [], *sides, given["val"], given["val_source"], given["val_target"])
    searched = searched_by(given["search"] or ())
    settings = _settings(given, inputs)
    fixed = next((name for name in (*BUDGETS, "seed") if name in settings), None)
    require(
        fixed is None,
        f"{fixed} is no setting of all trials: give --trial-steps or --trial-minutes, and --seed",
    )
    names = given["data"] or [name for name in (source, vectors) if name]
    data = inputs.keep(given_or_piped(names, "seqgen tune FILE"))
    budget = {"minutes": given["trial_minutes"], "steps": given["trial_steps"]}
    budget = {name: value for name, value in budget.items() if value is not None}
    nested = read_config(given["config"]) if given["config"] else {}

    from seqgen.commands.tuning.study import first_or_kept
    from seqgen.commands.tuning.tune import Tuning

    name = given["name"] or _name_of(data[0])
    asked = first_or_kept(name, budget, given["seed"], given["trials"], given["minutes"])
    return Tuning(
        data=data,
        targets=inputs.keep([target] if target else []),
        architecture=given["model"],
        task=given["task"],
        preset=given["preset"],
        settings=settings,
        config=nested,
        device=given["device"],
        searched=searched,
        sampler=given["sampler"],
        budget=asked[0],
        name=name,
        seed=asked[1],
        report=_say_notices if not quiet else lambda event: None,
    )


def _settings(given: Mapping[str, Any], inputs: Inputs) -> dict[str, Any]:
    """Return the settings that all trials have, as flags and `--set` give them."""
    settings = {name: given[name] for name in SETTINGS if given[name] is not None}
    settings |= dict(map(assignment, given["set_"] or ()))
    return settings | inputs.held_out(given["val"], given["val_source"], given["val_target"])


def _name_of(data: str | Path) -> str:
    """Return the name of a study of this data."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(data).stem).strip("-._") or "text"
    return f"{stem}-tune"


def _say_notices(event: Event) -> None:
    if isinstance(event, Notice):
        say(event.text)


def _introduce(tuning: Tuning) -> None:
    """Say what is searched, under which budget, and where it is kept."""
    space = ", ".join(f"{name} {values}" for name, values in tuning.space.items())
    name, number = next(iter(tuning.budget.items()))
    budget = plural(number, name.removesuffix("s"))
    say(f"{tuning.name}: {budget} a trial, {tuning.sampler} sampler, seed {tuning.study.seed}")
    say(f"searching {space}")
    say(f"kept in {tuning.study.folder}")


def _taker(
    json: bool, quiet: bool, kept: list[TrialRecord], unit: str
) -> Callable[[TrialRecord], None]:
    """Return what takes the records of trials: keeps them, and writes or says them."""

    def take(record: TrialRecord) -> None:
        kept.append(record)
        if json:
            put_record(record)
        if not quiet:
            say(
                f"trial {record.trial}: {_outcome(record, unit)}; {_settings_line(record.settings)}"
            )

    return take


def _outcome(record: TrialRecord, unit: str) -> str:
    """Return what came of a trial, in a few words, with its loss in nats per `unit`."""
    loss = f"{figure(record.val_loss)} nats/{unit}"
    if record.is_complete:
        return f"{loss} in {duration(record.seconds)}"
    if record.stopped == "pruned":
        return f"pruned at {loss} after {duration(record.seconds)}"
    return f"{record.stopped}: {record.error}"


def _settings_line(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_shown(value)}" for name, value in settings.items())


def _shown(value: Any) -> str:
    """Return a setting's value as a person reads it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return number(value) if isinstance(value, float) else str(value)


def _put_trials(records: Sequence[TrialRecord], result: TuningResult) -> None:
    """Write the table of the best trials, and of the importance of each setting."""
    order = sorted(
        records,
        key=lambda r: (not r.is_complete, math.inf if r.val_loss is None else r.val_loss, r.trial),
    )
    names = list(result.settings)
    rows = [
        [
            str(record.trial),
            *(_shown(record.settings.get(name)) for name in names),
            figure(record.val_loss),
            "recipe" if record.trial == 0 else record.stopped,
            duration(record.seconds),
        ]
        for record in order[:SHOWN]
    ]
    put_table(["trial", *names, "val loss", "stopped", "time"], rows)
    if result.importance:
        put("\n")
        rows = [[name, percentage(share, 0)] for name, share in result.importance.items()]
        put_table(["setting", "importance"], rows)


def _conclude(result: TuningResult, command: str, unit: str) -> None:
    """Say whether the search was worth it, and what to type next."""
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


def _next_command(given: Mapping[str, Any], result: TuningResult) -> str:
    """Return the command that trains on the same data with the best settings."""
    parts = ["seqgen", "train", *(given["data"] or ())]
    for name in ("source", "source_vectors", "target", "task"):
        if given[name] is not None:
            parts += [f"--{name.replace('_', '-')}", given[name]]
    return shlex.join([*parts, "--config", result.config])
