"""`seqgen models`: list, inspect, rename and remove trained models; list architectures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from seqgen import registry, store
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.help import CommandGroup, CommandWithHelp
from seqgen.cli.shell.known_settings import put_settings
from seqgen.cli.shell.model_facts import (
    describe,
    losses_by_step,
    mixture_facts,
    put_model,
    unit_of_loss,
)
from seqgen.cli.shell.model_options import StoredName
from seqgen.cli.shell.output import Output, put, put_record
from seqgen.cli.shell.output_files import Curves, check_picture, confirm_deleting
from seqgen.cli.shell.tables import (
    count,
    declared_columns,
    put_columns,
    put_facts,
)
from seqgen.errors import SeqgenError, UsageError
from seqgen.settings import REQUIRED, Options, Panel, argument, setting
from seqgen.wording import first_names


class ModelsGroup(CommandGroup):
    """Click group of `seqgen models`, whose --architectures takes an optional name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Let `--architectures` stand without a name by adding an empty one."""
        args = list(args)
        if "--architectures" in args:
            at = args.index("--architectures") + 1
            if not args[at:] or args[at].startswith("-") or args[at] in self.commands:
                args[at - 1] = "--architectures="
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=ModelsGroup, help="List, show, rename and remove trained models; list architectures."
)


class ListingOptions(Options, panel=Panel.MODEL):
    """Options of `seqgen models` that list architectures or presets instead of trained models."""

    architectures: str | None = setting(
        "List the architectures; followed by the NAME of one, list all its settings.",
        metavar="[NAME]",
        completes="architectures",
    )


@app.callback(invoke_without_command=True)
@takes_options
def models(context: typer.Context, listed: ListingOptions, out: Output) -> None:
    """List trained models, the latest first."""
    if listed.architectures is not None:
        if context.invoked_subcommand:
            raise UsageError("--architectures takes no command: seqgen models --architectures")
        if listed.architectures:
            put_settings(listed.architectures, out)
        else:
            _list_architectures(out)
    elif context.invoked_subcommand is None:
        _list(out)


@app.command("list", cls=CommandWithHelp)
@takes_options
def list_models(out: Output) -> None:
    """List trained models, the latest first."""
    _list(out)


def _list(out: Output) -> None:
    rows = list(map(describe, store.list_models()))
    if out.records(rows):
        return
    if rows:
        put_columns(declared_columns(rows, COLUMNS), rows, left=3)
        if any(row.leaves_unknowns_out for row in rows):
            advice = "score the text again with seqgen perplexity FILE"
            out.notice(f"> leaves unknown tokens out: {advice}")
    else:
        out.notice("there is no trained model yet; run seqgen train FILE")


# Fields of a `ModelRecord` in the order of columns.
COLUMNS = "name", "architecture", "tokenizer"


def _list_architectures(out: Output) -> None:
    known = registry.ARCHITECTURES.values()
    if not out.records({"name": kind.name, "summary": kind.summary} for kind in known):
        put_facts({kind.name: kind.summary for kind in known})


class Details(Options, panel=Panel.OUTPUT):
    """Options of `seqgen models show`: how much to show of a model."""

    all_: bool = setting("Show every setting and every figure, unrounded.", names=("--all",))
    samples: bool = setting("Show what the model wrote while it learned, step by step.")


@app.command(cls=CommandWithHelp)
@takes_options
def show(name: StoredName, details: Details, curves: Curves, out: Output) -> None:
    """Show what a model is and how its training went, also during training.

    Prints six facts, the loss curve, and the settings that differ from the defaults of the
    model's architecture.
    """
    from seqgen.text.tokenizers import load_tokenizer

    model = store.find(name.name)
    if curves.plot is not None:
        _draw_losses(model, check_picture(curves.plot, ()))
    if details.samples:
        _samples(model, out)
        return
    config, record = model.config, model.record
    target_tokenizer = load_tokenizer(model.path / "tokenizer")
    tokenizer = target_tokenizer.describe()
    if config["data"].get("labels"):
        labels = model.load_source_tokenizer(target_tokenizer)
        tokenizer["labels"] = f"{count(len(labels))}: {labels.listed}"
    if out.json:
        if result := store.result_of(model):
            record["result"] = result
        facts = {"config": config, "training": record, "tokenizer_facts": tokenizer}
        facts["mixture"] = mixture_facts(model)
        facts["weights"] = model.reduced_types or None
        put_record({**vars(describe(model)), **facts})
        return
    put_model(model, tokenizer, details.all_)


def _draw_losses(model: store.StoredModel, plot: Path) -> None:
    """Plot the training and validation losses of a model by step.

    Raises:
        SeqgenError: none were logged.
    """
    from seqgen.cli.shell.pictures import draw_lines

    losses = {name: points for name, points in losses_by_step(model).items() if points}
    if not losses:
        raise SeqgenError(f"{model.name} has no losses by step: there is nothing to draw")
    draw_lines(plot, losses, "step", unit_of_loss(model), log="", marker="", title=model.name)


def _samples(model: store.StoredModel, out: Output) -> None:
    """Print the samples that a model generated during training, all drawn with the same seed."""
    records = model.logged(store.SAMPLES)
    for record in records:
        if not out.record(record):
            put(f"── step {record['step']} ──\n{record['text']}\n\n")
    if not records:
        out.notice(f"{model.name} has no samples")


class RenameArguments(Options):
    """Arguments of `seqgen models rename`: old and new name."""

    old: str = argument("Trained model: a name, a path or latest.", "OLD", completes="models")
    new: str = argument("Its new name.", "NEW")


@app.command(cls=CommandWithHelp)
@takes_options
def rename(renamed: RenameArguments, out: Output) -> None:
    """Give a trained model another name."""
    before = store.find(renamed.old)
    model = store.rename(before, renamed.new)
    if not out.record(describe(model)):
        out.notice(f"{before.name} is now {model.name}")


class ModelsToRemove(Options, panel=Panel.OTHER):
    """Arguments of `seqgen models remove`: the models to delete."""

    names: tuple[str, ...] = argument(
        "Trained models (seqgen models lists them).", "NAMES", default=REQUIRED, completes="models"
    )
    yes: bool = setting("Do not ask for confirmation.", names=("--yes", "-y"))


@app.command(cls=CommandWithHelp)
@takes_options
def remove(removed: ModelsToRemove, out: Output) -> None:
    """Delete trained models. Files that seqgen did not write are never deleted."""
    chosen = {store.check_removable(model): model for model in map(store.find, removed.names)}
    if dependents := store.dependent_models(chosen.values()):
        out.notice(f"this breaks what is made of it: {first_names(dependents)}")
    confirm_deleting(chosen, removed.yes)
    for place, model in chosen.items():
        store.remove(model)
        out.record({"name": model.name, "path": str(place)})
        out.notice(f"removed {place}")


@app.command(cls=CommandWithHelp)
@takes_options
def path(name: StoredName, out: Output) -> None:
    """Print the folder of a model."""
    model = store.find(name.name)
    if not out.record({"name": model.name, "path": str(model.path)}):
        put(f"{model.path}\n")
