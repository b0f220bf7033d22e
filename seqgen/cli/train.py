"""`seqgen train`: train a model on text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from seqgen import ranks, store
from seqgen.cli.shell import recording
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Inputs, given_or_piped
from seqgen.cli.shell.output import RecordedOutput
from seqgen.cli.shell.output_files import check_replaced_model
from seqgen.cli.shell.process import keep_freed_memory
from seqgen.cli.shell.progress import how_to_resume, summarise
from seqgen.cli.shell.tables import byte_size
from seqgen.cli.shell.train_options import (
    Recipe,
    SeededDevice,
    TrainingFiles,
    check_no_model_name,
)
from seqgen.errors import Interrupted, UsageError, telling_if_interrupted
from seqgen.settings import OptionRule, Options, Panel, setting
from seqgen.settings.options import added_options

# What plugins add, groups of the class `ListenerOptions`.
Added = added_options("train")


class RunFlags(Options, panel=Panel.SAVING):
    """Options for a training run: name, resuming, and when it ends."""

    data_option: tuple[str, ...] = setting(
        "The same as DATA; for --resume, its new place.",
        names=("--data",),
        reads="file",
        panel=Panel.WHAT,
    )
    stop_after: int | None = setting(
        "Save and stop after this many steps; continue with --resume.", low=1, panel=Panel.BUDGET
    )
    name: str | None = setting(
        "Name of the new model.",
        metavar="NAME",
        without="made from DATA and the architecture",
        common=True,
    )
    overwrite: bool = setting("Replace the model of that name.", common=True)
    resume: str | None = setting(
        "Continue a stopped run: a name, a path or latest.",
        completes="models",
        common=True,
        conflicts=OptionRule(
            (
                *("--model", "--task", "--preset", "--parameters", "--name", "--overwrite"),
                "--config",
            ),
            "{other} has no meaning with {flag}",
        ),
    )
    continue_: bool = setting(
        "Resume the model of --name if there is one; if it has finished, do nothing.",
        names=("--continue",),
        panel=Panel.MORE,
        needs=OptionRule(("--name",), "{flag} resumes the model of --name NAME"),
        conflicts=("--overwrite",),
    )
    changed_data: bool = setting(
        "Resume even if the text has changed.",
        panel=Panel.MORE,
        needs=OptionRule(("--resume",), "{flag} has no meaning with a new run"),
    )

    @property
    def resumed(self) -> str | None:
        """Model to resume: that of --resume, or with --continue that of --name if there is one."""
        exists = self.continue_ and not store.is_free(self.name)
        return self.name if exists else self.resume


class Ranks(Options, panel=Panel.PROCESSES):
    """Options for distributed training with torchrun."""

    shard: bool = setting(
        "Under torchrun: divide parameters, gradients and optimizer states (FSDP)."
    )
    timeout: float | None = setting(
        "Under torchrun: seconds that a process waits for another one, which may be validating.",
        low=1,
        without="1800",
        panel=Panel.MORE,
    )


@takes_options
def train(
    recipe: Recipe,
    files: TrainingFiles,
    run: RunFlags,
    added: Added,
    processes: Ranks,
    machine: SeededDevice,
    out: RecordedOutput,
) -> None:
    """Train a model on text, on pairs of texts or on labels; for five minutes by default.

    Where the default is "chosen", it is made to fit the architecture, the text and the budget.
    """
    if recipe.put_help(out):
        return
    from seqgen.cli.shell.progress import display

    data = files.named(run.data_option)
    settings = recipe.settings(machine)
    given = {**settings, **recipe.asked, "name": run.name, "data": data}
    if any(group.print_instead(given, out) for group in added.groups):
        return
    resumed = run.resumed
    if resumed is None and ranks.is_launched() and (not data or "-" in data):
        raise UsageError("several processes cannot share standard input: give DATA as files")
    out = out if ranks.is_leader() else replace(out, quiet=True)
    if processes.shard or settings.get("memory") or settings.get("checkpointing"):
        keep_freed_memory(False)
    inputs = files.inputs(recipe.given_settings, out)
    # Shown before PyTorch is imported. Processes connect before files are looked at, so that one
    # line says what all of them miss.
    with display(out, _reading(resumed or data)) as shown, _group(processes.timeout):
        from seqgen.training.listeners import LastEvents

        report = LastEvents(shown)
        settings |= files.held_out(recipe.given_settings, inputs)
        for group in added.groups:
            group.check_outputs(lambda: inputs.open(data))
        # What a new and a resumed run share.
        options = {"targets": files.targets(inputs, data), "settings": settings, "report": report}
        options |= {"device": machine.device, "stop_after": run.stop_after}
        options |= {"began": recording.run.began}
        options |= processes.to_dict() | added.keywords
        if resumed is not None:
            from seqgen.training.resume import continue_run, resume

            kept = inputs.keep(data)
            proceed = continue_run if run.continue_ else resume
            result = proceed(resumed, data=kept, changed_data=run.changed_data, **options)
        else:
            sources = _files_of_new_run(files, recipe, run, data, inputs)
            from seqgen.training.train import train as begin

            name, overwrite = run.name, run.overwrite
            result = begin(sources, name=name, overwrite=overwrite, **recipe.asked, **options)
    if not ranks.is_leader():  # the first process says what came of it
        raise typer.Exit(Interrupted.exit_code if result.stopped == "interrupted" else 0)
    with telling_if_interrupted(f"{result.name} is saved"):
        out.record(result)
        if result.stopped == "interrupted":
            raise Interrupted(how_to_resume(result))
        if not out.quiet:
            summarise(result, report.events)


def _reading(data: str | Sequence[str]) -> str:
    """Describe what is read: a model to resume, or the first file, and the size of all files."""
    if not data or isinstance(data, str):
        return f"reading {data or 'standard input'}"
    sizes = [Path(name).stat().st_size for name in data if Path(name).is_file()]
    size = f", {byte_size(sum(sizes))}" if len(sizes) == len(data) else ""
    others = f" and {len(data) - 1} more" if len(data) > 1 else ""
    return f"reading {Path(data[0]).name or data[0]}{others}{size}"


@contextlib.contextmanager
def _group(timeout: float | None) -> Iterator[None]:
    """Connect the processes of torchrun; see `seqgen.ranks.group`, which imports PyTorch."""
    from seqgen.ranks.group import process_group

    with process_group(timeout):
        yield


def _files_of_new_run(
    files: TrainingFiles, recipe: Recipe, run: RunFlags, data: Sequence[str], inputs: Inputs
) -> list[str | Path]:
    """Resolve the input files of a new run to files that can be read again when it is resumed.

    Raises:
        UsageError: its name is in use, or it would replace what it reads.
    """
    check_no_model_name(data)
    if not ranks.restart_count():
        store.check_free(run.name, run.overwrite)
    settings = recipe.given_settings
    start = f" --init-from {settings.init_from}" if settings.init_from else ""
    sources = inputs.keep(given_or_piped(data, f"seqgen train FILE{start}"))
    if run.overwrite:
        held_out = (settings.val, files.val_source, settings.val_target)
        check_replaced_model(run.name, [*sources, *files.target, *filter(None, held_out)])
    return sources
