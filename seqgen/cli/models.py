"""`seqgen models`: what has been trained, and what can be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seqgen import presets, registry, store
from seqgen.cli import completion, options
from seqgen.cli.help import Command, Group, flag
from seqgen.cli.model_facts import (
    describe,
    losses_by_step,
    mixture_facts,
    put_model,
    unit_of_loss,
)
from seqgen.cli.output import put, put_record, say
from seqgen.cli.outputs import check_picture, confirm_deleting
from seqgen.cli.tables import (
    MISSING,
    age,
    byte_size,
    count,
    figure,
    put_facts,
    put_table,
    short_count,
)
from seqgen.configs.panels import MODEL, OTHER, OUTPUT
from seqgen.errors import SeqgenError, UsageError
from seqgen.wording import first_names, plural


class ModelsGroup(Group):
    """The group of commands; `--architectures` may be followed by a name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read `--architectures NAME` as the option that it is short for."""
        args = list(args)
        if "--architectures" in args:
            at = args.index("--architectures") + 1
            if args[at:] and not args[at].startswith("-") and args[at] not in self.commands:
                args.insert(at, "--settings-of")
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=ModelsGroup, help="List, show, rename and remove trained models; list architectures."
)

Name = Annotated[
    str | None,
    typer.Argument(
        help="Trained model: a name or a path; the latest if none is given.",
        metavar="[NAME]",
        show_default=False,
        autocompletion=completion.models,
    ),
]


@app.callback(invoke_without_command=True)
def models(
    context: typer.Context,
    architectures: Annotated[
        bool,
        flag(
            "--architectures",
            MODEL,
            "List the architectures; followed by the NAME of one, list all its settings.",
        ),
    ] = False,
    settings_of: Annotated[
        str | None,
        typer.Option(hidden=True, metavar="NAME", autocompletion=completion.architectures),
    ] = None,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """List trained models, the latest first."""
    if architectures:
        if context.invoked_subcommand:
            raise UsageError("--architectures stands alone: seqgen models --architectures")
        if settings_of is not None:
            put_settings(settings_of, json)
        else:
            _list_architectures(json)
    elif context.invoked_subcommand is None:
        _list(json, quiet)


@app.command("list", cls=Command)
def list_models(
    threads: options.Threads = None, json: options.Json = False, quiet: options.Quiet = False
) -> None:
    """List trained models, the latest first."""
    _list(json, quiet)


def _list(json: bool, quiet: bool) -> None:
    rows = list(map(describe, store.list_models()))
    if json:
        for row in rows:
            put_record(row)
    elif rows:
        names = ("name", "architecture", "tokenizer", "parameters", "bits/char", "created")
        put_table(names, map(_row, rows), left=3)
        if any(map(store.leaves_unknowns_out, rows)) and not quiet:
            say("> leaves unknown tokens out: score the text again with seqgen perplexity FILE")
    elif not quiet:
        say("there is no trained model yet; run seqgen train FILE")


def _row(facts: dict[str, Any]) -> list[str]:
    return [
        facts["name"],
        facts["architecture"] or MISSING,
        facts["tokenizer"] or MISSING,
        short_count(facts["parameters"]),
        ("> " if store.leaves_unknowns_out(facts) else "") + figure(facts["val_bits_per_char"], 3),
        age(facts["created"]),
    ]


def _list_architectures(json: bool) -> None:
    for kind in registry.ARCHITECTURES.values():
        if json:
            put_record({"name": kind.name, "summary": kind.summary})
    if not json:
        put_facts({kind.name: kind.summary for kind in registry.ARCHITECTURES.values()})


def put_presets(json: bool) -> None:
    """Write what each preset is."""
    for preset in presets.PRESETS.values() if json else ():
        facts = {"architecture": preset.architecture, "summary": preset.summary}
        put_record({"name": preset.name, **facts})
    if not json:
        put_facts({preset.name: preset.summary for preset in presets.PRESETS.values()})


def put_settings(architecture: str, json: bool, only: str | None = None) -> None:
    """Write every setting of an architecture, of training and of the data, or one of them.

    Raises:
        UsageError: there is no such architecture or setting.
    """
    from seqgen.cli.settings import facts_line, settings_of

    records = settings_of(architecture, only)
    if json:
        for record in records:
            put_record(record)
        return
    for number, group in enumerate(dict.fromkeys(record["group"] for record in records)):
        heading = architecture if group == "model" else group
        put(f"{chr(10) if number else ''}{heading}:\n")
        of_group = [record for record in records if record["group"] == group]
        put_facts({record["setting"]: facts_line(record) for record in of_group}, indent=2)


@app.command(cls=Command)
def show(
    name: Name = None,
    all_: Annotated[
        bool, flag("--all", OUTPUT, "Show every setting and every figure, unrounded.")
    ] = False,
    samples: Annotated[
        bool, flag("--samples", OUTPUT, "Show what the model wrote while it learned, step by step.")
    ] = False,
    plot: options.Picture = None,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what a model is and how its training went, also during training.

    Prints six facts, the loss curve, and the settings that differ from the defaults of the
    model's architecture.
    """
    from seqgen.tokenizers import load_tokenizer

    model = store.find(name)
    if plot is not None:
        _draw_losses(model, check_picture(plot, ()))
    if samples:
        _samples(model, json, quiet)
        return
    config, record = model.config, model.record
    target_tokenizer = load_tokenizer(model.path / "tokenizer")
    tokenizer = target_tokenizer.describe()
    if config["data"].get("labels"):
        labels = model.load_source_tokenizer(target_tokenizer)
        tokenizer["labels"] = f"{count(len(labels))}: {labels.listed}"
    if json:
        if result := store.result_of(model):
            record["result"] = result
        facts = {"config": config, "training": record, "tokenizer_facts": tokenizer}
        facts["mixture"] = mixture_facts(model)
        put_record({**describe(model), **facts})
        return
    put_model(model, tokenizer, all_)


def _draw_losses(model: store.StoredModel, plot: Path) -> None:
    """Draw the losses of a model by step.

    Raises:
        SeqgenError: none were logged.
    """
    from seqgen.report.lines import draw_lines

    losses = {name: points for name, points in losses_by_step(model).items() if points}
    if not losses:
        raise SeqgenError(f"{model.name} has no losses by step: there is nothing to draw")
    draw_lines(plot, losses, "step", unit_of_loss(model), log="", marker="", title=model.name)


def _samples(model: store.StoredModel, json: bool, quiet: bool) -> None:
    """Print what a model wrote along the way, always from the same draws."""
    records = model.logged(store.SAMPLES)
    for record in records:
        if json:
            put_record(record)
        else:
            put(f"── step {record['step']} ──\n{record['text']}\n\n")
    if not records and not quiet:
        say(f"{model.name} has no samples")


@app.command(cls=Command)
def rename(
    old: Annotated[
        str,
        typer.Argument(
            help="Trained model: a name, a path or latest.",
            metavar="OLD",
            show_default=False,
            autocompletion=completion.models,
        ),
    ],
    new: Annotated[str, typer.Argument(help="Its new name.", metavar="NEW", show_default=False)],
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Give a trained model another name."""
    before = store.find(old)
    model = store.rename(before, new)
    if json:
        put_record(describe(model))
    elif not quiet:
        say(f"{before.name} is now {model.name}")


@app.command(cls=Command)
def remove(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Trained models: names or paths.",
            metavar="NAMES",
            show_default=False,
            autocompletion=completion.models,
        ),
    ],
    yes: Annotated[bool, flag("--yes", OTHER, "Do not ask for confirmation.", "-y")] = False,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Delete trained models. Files that seqgen did not write are never deleted."""
    chosen = {store.check_removable(model): model for model in map(store.find, names)}
    if (needing := store.needing(chosen.values())) and not quiet:
        say(f"{first_names(needing)} cannot be used without what is removed")
    confirm_deleting(chosen, yes)
    for place, model in chosen.items():
        store.remove(model)
        if json:
            put_record({"name": model.name, "path": str(place)})
        if not quiet:
            say(f"removed {place}")


@app.command(cls=Command)
def path(
    name: Name = None,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Print the folder of a model."""
    model = store.find(name)
    if json:
        put_record({"name": model.name, "path": str(model.path)})
    else:
        put(f"{model.path}\n")


@app.command(cls=Command)
def cache(
    clear: Annotated[
        bool,
        flag(
            "--clear",
            OTHER,
            "Delete encoded texts and measured speeds; they are made again when needed.",
        ),
    ] = False,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """List the cache: encoded texts, texts from standard input, measured speeds.

    --clear keeps the texts from standard input, because --resume needs them, and also deletes
    what killed runs left behind.
    """
    if clear:
        sizes = dict(_sizes())
        gone = store.clear_cache()
        left = store.clean()
        size = sum(sizes.get(path, 0) for path in gone)
        if json:
            put_record({"removed": len(gone), "bytes": size, "leftovers": len(left)})
        if not quiet:
            say(f"removed {plural(len(gone), 'file')}, {byte_size(size)}")
            if left:
                say(f"removed {plural(len(left), 'leftover')} of runs that were killed")
        return
    rows = [{"kind": path.parent.name, "bytes": size, "path": str(path)} for path, size in _sizes()]
    if json:
        for row in rows:
            put_record(row)
        return
    for row in rows:
        put(f"{row['kind']:<7}  {count(row['bytes']):>15}  {row['path']}\n")
    if not rows and not quiet:
        say("the cache is empty")


def _sizes() -> list[tuple[Path, int]]:
    files = [*store.cached_files(), *store.measurements()]
    return [(path, path.stat().st_size) for path in files]
