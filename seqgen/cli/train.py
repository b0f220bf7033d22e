"""`seqgen train`: train a model on text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seqgen import presets, ranks, registry, store
from seqgen.cli import completion, options
from seqgen.cli.data_options import (
    DocumentsKind,
    HasLabels,
    TokenizerKind,
    ValTarget,
    VocabSize,
)
from seqgen.cli.inputs import Inputs, file_name, file_path, given_or_piped
from seqgen.cli.output import put_record
from seqgen.cli.outputs import check_picture, check_replaced_model
from seqgen.cli.pairs import check_sides
from seqgen.cli.process import return_freed_memory
from seqgen.cli.settings import SETTING_OF, assignment
from seqgen.cli.settings import option as setting
from seqgen.cli.several import Shard, Timeout, check_alone, check_files, leave_to_first
from seqgen.cli.train_flags import ITSELF, check_no_model_name, refuse
from seqgen.cli.train_summary import LastLook, how_to_go_on, summarise
from seqgen.configs.options import BUDGET, OPTIMISATION, OUTPUT, SAVING, TEXT, WHAT
from seqgen.errors import Interrupted, UsageError


def _choice(name: str, panel: str, metavar: str = "KIND", **more: Any) -> Any:
    """Return the option of a training setting that has fixed values."""
    return setting(name, metavar, panel, complete=completion.choices(name), **more)


def train(
    context: typer.Context,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text files, folders or patterns, - for standard input, or one token file.",
            parser=file_name,
            metavar="DATA",
            show_default=False,
        ),
    ] = None,
    data_option: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="The same as DATA; with --resume, where the text is now.",
            parser=file_name,
            metavar="FILE",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="For pairs in two files: the sources, one per line; needs --target. Pairs in one "
            "file are given as DATA, with a source, a tab and a target on each line.",
            parser=file_name,
            metavar="FILE",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None,
    source_vectors: Annotated[
        str | None,
        typer.Option(
            help="Train on pairs of vectors and texts: a .npy or .safetensors file with a vector, "
            "a sequence or a grid of vectors for each target; needs --target.",
            parser=file_name,
            metavar="FILE",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="For pairs in two files: the targets; line n belongs to line n of --source, or to "
            "source n of --source-vectors.",
            parser=file_name,
            metavar="FILE",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Architecture, such as lstm, gru, transformer, ngram or seq2seq; "
            "`seqgen models --architectures` lists all. auto is lstm, mixed with an n-gram model "
            "if the text is small.",
            metavar="NAME",
            rich_help_panel=WHAT,
            show_default=registry.DEFAULT,
            autocompletion=completion.architectures,
        ),
    ] = None,
    task: options.Task = None,
    features: options.Features = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Use the settings of a known model: {', '.join(presets.PRESETS)}. Your own "
            "flags override them; --preset help describes them.",
            metavar="NAME",
            rich_help_panel=WHAT,
            show_default=False,
            autocompletion=completion.preset_names,
        ),
    ] = None,
    layers: Annotated[int | None, setting("num_layers", "N", WHAT)] = None,
    hidden_size: Annotated[int | None, setting("hidden_size", "N", WHAT)] = None,
    parameters: options.Parameters = None,
    with_ngram: Annotated[int | None, setting("with_ngram", "[ORDER]", WHAT)] = None,
    heads: Annotated[int | None, setting("num_heads", "N", WHAT)] = None,
    dropout: Annotated[float | None, setting("dropout", "X", WHAT)] = None,
    order: Annotated[int | None, setting("order", "N", WHAT, default="5")] = None,
    smoothing: Annotated[
        str | None,
        setting(
            "smoothing",
            "KIND",
            WHAT,
            default="modified-kneser-ney",
            choices=completion.SMOOTHINGS,
            complete=completion.smoothings,
        ),
    ] = None,
    tokenizer: TokenizerKind = None,
    source_tokenizer: Annotated[
        str | None,
        setting("source_tokenizer", "KIND", TEXT, complete=completion.tokenizers, parser=file_name),
    ] = None,
    vocab_size: VocabSize = None,
    direction: Annotated[
        str | None,
        setting("direction", "KIND", TEXT, complete=completion.one_of("forward", "backward")),
    ] = None,
    labels: HasLabels = None,
    documents: DocumentsKind = None,
    val: Annotated[str | None, setting("val", "X|FILE|none", TEXT, parser=file_name)] = None,
    val_source: Annotated[
        str | None,
        typer.Option(
            help="For pairs in two files: the held-out sources, lines or vectors; "
            "needs --val-target.",
            parser=file_name,
            metavar="FILE",
            rich_help_panel=TEXT,
            show_default=False,
        ),
    ] = None,
    val_target: ValTarget = None,
    max_source_len: Annotated[int | None, setting("max_source_len", "N", TEXT)] = None,
    max_target_len: Annotated[int | None, setting("max_target_len", "N", TEXT)] = None,
    split_seed: Annotated[int | None, setting("split_seed", "N", TEXT)] = None,
    newlines: Annotated[
        str | None, setting("newlines", "keep|lf", TEXT, complete=completion.one_of("keep", "lf"))
    ] = None,
    steps: Annotated[int | None, setting("steps", "N", BUDGET)] = None,
    epochs: Annotated[float | None, setting("epochs", "X", BUDGET)] = None,
    minutes: Annotated[
        float | None, setting("minutes", "X", BUDGET, default="5 if no budget is given")
    ] = None,
    patience: Annotated[int | None, setting("patience", "N", BUDGET)] = None,
    stop_after: Annotated[
        int | None,
        typer.Option(
            help="Save and stop after this many steps; continue with --resume.",
            min=1,
            metavar="N",
            rich_help_panel=BUDGET,
            show_default=False,
        ),
    ] = None,
    regime: Annotated[str | None, _choice("regime", OPTIMISATION)] = None,
    optimizer: Annotated[str | None, _choice("optimizer", OPTIMISATION)] = None,
    lr: Annotated[float | None, setting("lr", "X", OPTIMISATION)] = None,
    schedule: Annotated[str | None, _choice("schedule", OPTIMISATION)] = None,
    seq_len: Annotated[int | None, setting("seq_len", "N", OPTIMISATION)] = None,
    batch_size: Annotated[int | None, setting("batch_size", "N", OPTIMISATION)] = None,
    reset_state: Annotated[
        bool | None, setting("reset_state", "", OPTIMISATION, "--reset-state")
    ] = None,
    clip_norm: Annotated[float | None, setting("clip_norm", "X", OPTIMISATION)] = None,
    precision: Annotated[str | None, _choice("precision", OPTIMISATION)] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Read settings from a TOML file, or from a model's config.json.",
            parser=file_path,
            metavar="FILE",
            rich_help_panel=OPTIMISATION,
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Set any other setting; --set help lists them all, --set help=KEY explains one. "
            "Can be repeated.",
            metavar="KEY=VALUE",
            rich_help_panel=OPTIMISATION,
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="Name of the new model.",
            metavar="NAME",
            rich_help_panel=SAVING,
            show_default="made from DATA and the architecture",
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace the model of that name.", rich_help_panel=SAVING),
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Continue a stopped run: a name, a path or latest.",
            metavar="NAME",
            rich_help_panel=SAVING,
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None,
    changed_data: Annotated[
        bool,
        typer.Option(
            "--changed-data", help="Resume even if the text has changed.", rich_help_panel=SAVING
        ),
    ] = False,
    init_from: Annotated[
        str | None, setting("init_from", "NAME", SAVING, complete=completion.models)
    ] = None,
    checkpoint_every: Annotated[int | None, setting("checkpoint_every", "N", SAVING)] = None,
    keep: Annotated[int | None, setting("keep", "N", SAVING)] = None,
    tensorboard: Annotated[
        bool,
        typer.Option(
            "--tensorboard",
            help="Also write logs for TensorBoard (needs the package tensorboard).",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    diagnose: Annotated[
        bool,
        typer.Option(
            "--diagnose",
            help="Also log how every layer is doing, how far gradients reach, which --plot FILE "
            "draws, and how widely attention spreads.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    find_lr: Annotated[
        bool,
        typer.Option(
            "--find-lr",
            help="Store nothing: train for 100 steps with a rising learning rate, draw the losses, "
            "and suggest a value for --lr.",
            rich_help_panel=OPTIMISATION,
        ),
    ] = False,
    plot: options.Picture = None,
    shard: Shard = False,
    timeout: Timeout = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    seed: options.Seed = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a model on text, on pairs of texts or on labels; for five minutes by default.

    Where the default is "chosen", it is made to fit the architecture, the text and the budget.
    """
    from seqgen.cli.find_lr import put_rate
    from seqgen.cli.models import put_presets, put_settings
    from seqgen.cli.progress import display
    from seqgen.configs import read_config

    if preset == "help":
        put_presets(json)
        return
    if plot is not None and not (find_lr or diagnose):
        raise UsageError(
            "--plot is for --find-lr and --diagnose; seqgen models show draws the losses of a run"
        )
    for key, _, setting_name in (text.partition("=") for text in set_ or ()):
        if key == "help":
            named = None if model == registry.AUTO else model
            of_preset = preset and presets.preset(preset).architecture
            put_settings(named or of_preset or registry.DEFAULT, json, setting_name or None)
            return
    from seqgen.commands.training.resume import resume as go_on
    from seqgen.commands.training.train import train as run
    from seqgen.ranks.group import together

    data = [*(data or ()), *(data_option or ())]
    check_sides(data, source, source_vectors, target, val, val_source, val_target)
    data = data or source or ([source_vectors] if source_vectors else [])
    settings = {
        SETTING_OF.get(flag, flag): value
        for flag, value in context.params.items()
        if flag not in ITSELF and value is not None
    }
    settings |= dict(map(assignment, set_ or ()))
    if resume is None:
        check_files(data)
        if find_lr:
            check_alone("--find-lr")
    draws = plot is not None and not find_lr
    quiet = quiet or not ranks.leads()
    if shard:
        return_freed_memory()
    inputs = Inputs(quiet)
    # Connected before files are looked at, so that one line says what all processes miss.
    with together(timeout), display(quiet) as shown:
        report = LastLook(shown)
        settings |= inputs.held_out(val, val_source, val_target)
        place = check_picture(plot, inputs.open(map(str, data))) if draws else None
        common = {"settings": settings, "device": device, "targets": inputs.keep(target or ())}
        during = {"stop_after": stop_after, "tensorboard": tensorboard, "diagnose": diagnose}
        during |= {"shard": shard, "timeout": timeout}
        if resume is not None:
            conflicting = ("model", "task", "preset", "parameters", "name", "overwrite", "config")
            refuse(context, "--resume", (*conflicting, "find_lr"))
            sources = inputs.keep(data)
            how = {"changed_data": changed_data, "report": report}
            result = go_on(resume, data=sources, **how, **common, **during)
        else:
            refuse(context, "a new run", ("changed_data",))
            check_no_model_name(data)
            nested = read_config(config) if config else {}
            if not ranks.restarts():
                store.check_free(name, overwrite)
            sources = inputs.keep(given_or_piped(data, "seqgen train FILE"))
            asked = {"architecture": model, "task": task, "preset": preset, "config": nested}
            asked |= {"parameters": parameters, **common}
            if find_lr:
                conflicting = (
                    "name",
                    "overwrite",
                    "stop_after",
                    "tensorboard",
                    "diagnose",
                    "shard",
                )
                refuse(context, "--find-lr", conflicting)
                put_rate(sources, asked, inputs.open(map(str, data)), plot, report, json)
                return
            if overwrite:
                held_out = [file for file in (val, val_source, val_target) if file]
                check_replaced_model(name, [*sources, *common["targets"], *held_out])
            where = {"name": name, "overwrite": overwrite, "report": report}
            result = run(sources, **where, **asked, **during)
    leave_to_first(result.stopped)
    if place is not None:
        report.draw(place, result.name)
    if json:
        put_record(result)
    if result.stopped == "interrupted":
        raise Interrupted(how_to_go_on(result))
    if not quiet:
        summarise(result)
        report.put()
