"""`seqgen train`: train a model on text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seqgen import presets, registry, store
from seqgen.cli import options
from seqgen.cli.inputs import Inputs, file_name, file_path, given_or_piped
from seqgen.cli.output import put_record, say
from seqgen.cli.outputs import check_replaced_model
from seqgen.errors import Interrupted, UsageError

# Flags whose name is not the setting's.
SETTING_OF = {"layers": "num_layers", "heads": "num_heads"}
# Flags that are no setting.
OWN = frozenset(
    {
        "data",
        "data_option",
        "model",
        "preset",
        "name",
        "overwrite",
        "config",
        "set_",
        "device",
        "json",
        "quiet",
    }
    | {"stop_after", "resume", "changed_data", "tensorboard"}
)


# So many lines of what the model writes end the summary.
SAMPLE_LINES = 6
# What --help ends with: a paragraph each, which is what keeps them on lines of their own.
EPILOG = "\n\n".join(
    ["Presets:", *(f"{row.name}: {row.summary}." for row in presets.PRESETS.values())]
)


def train(
    context: typer.Context,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text files, folders, patterns, or - for standard input; or one token file.",
            parser=file_name,
            metavar="DATA",
            show_default=False,
        ),
    ] = None,
    data_option: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="The same as DATA.",
            parser=file_name,
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help=f"Architecture; {registry.DEFAULT} if none.", show_default=False),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="A known model's settings, beneath yours; listed below.", show_default=False
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What to call the model.", show_default=False)
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model of that name.")
    ] = False,
    layers: Annotated[int | None, typer.Option(help="Layers.", show_default=False)] = None,
    hidden_size: Annotated[int | None, typer.Option(help="Width.", show_default=False)] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads.", show_default=False)] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout.", show_default=False)] = None,
    order: Annotated[
        int | None, typer.Option(help="N of an n-gram model.", show_default=False)
    ] = None,
    smoothing: Annotated[
        str | None,
        typer.Option(
            help="maximum-likelihood, add-delta, stupid-backoff, kneser-ney or "
            "modified-kneser-ney (the default).",
            show_default=False,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="char (the default), byte, word, whitespace, bpe or unigram; or a tokenizer's "
            "folder, a sentencepiece .model or a token file.",
            parser=file_name,
            metavar="KIND|FILE",
            show_default=False,
        ),
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(help="Keep the N commonest tokens.", show_default=False)
    ] = None,
    documents: Annotated[
        str | None, typer.Option(help="stream (the default) or line.", show_default=False)
    ] = None,
    val: Annotated[
        str | None,
        typer.Option(
            help="Held out: a share (0.1), a file, or none.",
            parser=file_name,
            metavar="SHARE|FILE|none",
            show_default=False,
        ),
    ] = None,
    split_seed: Annotated[
        int | None, typer.Option(help="Draws the held-out lines.", show_default=False)
    ] = None,
    newlines: Annotated[
        str | None, typer.Option(help="keep (the default), or lf.", show_default=False)
    ] = None,
    seq_len: Annotated[
        int | None, typer.Option(help="Tokens in a window.", show_default=False)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Windows in a step.", show_default=False)
    ] = None,
    reset_state: Annotated[
        bool | None,
        typer.Option("--reset-state", help="Start every window from zero.", show_default=False),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            help="sgd, adagrad, rmsprop, adam, adamw or muon (hidden matrices; adamw the rest).",
            show_default=False,
        ),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Peak learning rate.", show_default=False)
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="constant, inverse_time, inverse_sqrt, step, cosine, linear, slanted_triangular "
            "or wsd.",
            show_default=False,
        ),
    ] = None,
    clip_norm: Annotated[
        float | None, typer.Option(help="Largest gradient norm; 0 for any.", show_default=False)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in steps.", show_default=False)] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Budget in passes.", show_default=False)
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Budget in minutes; 5 if none is given.", show_default=False),
    ] = None,
    stop_after: Annotated[
        int | None, typer.Option(help="Save and stop after N steps.", min=1, show_default=False)
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Go on with a stopped run: a name, a path or latest.", show_default=False
        ),
    ] = None,
    changed_data: Annotated[
        bool, typer.Option("--changed-data", help="Resume although the text is another.")
    ] = False,
    init_from: Annotated[
        str | None,
        typer.Option(
            help="Fine-tune: begin with this model's weights, on other text.", show_default=False
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(help="Stop after N validations that are no better.", show_default=False),
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Steps between checkpoints.", show_default=False)
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(help="Checkpoints to keep; 1 if none is given.", show_default=False),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Log for TensorBoard too (an extra).")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Settings: TOML, or a model's config.json.",
            parser=file_path,
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE: any other setting.", show_default=False),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="auto, float32, float64 or bf16.", show_default=False)
    ] = None,
    device: options.Device = "auto",
    seed: options.Seed = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a model on text: five minutes unless told otherwise."""
    from seqgen.cli.progress import display
    from seqgen.configs import read_config
    from seqgen.tasks.train import resume as go_on
    from seqgen.tasks.train import train as run

    data = [*(data or ()), *(data_option or ())]
    settings = {
        SETTING_OF.get(flag, flag): value
        for flag, value in context.params.items()
        if flag not in OWN and value is not None
    }
    settings |= dict(map(_assignment, set_ or ()))
    inputs = Inputs(quiet)
    if val is not None:
        settings["val"] = inputs.keep_held_out(val)
    common = {"settings": settings, "device": device}
    common |= {"stop_after": stop_after, "tensorboard": tensorboard}
    with display(quiet) as report:
        if resume is not None:
            _refuse(context, "--resume", ("model", "preset", "name", "overwrite", "config"))
            sources = inputs.keep(data)
            result = go_on(resume, data=sources, changed_data=changed_data, report=report, **common)
        else:
            _refuse(context, "a new run", ("changed_data",))
            nested = read_config(config) if config else {}
            store.check_free(name, overwrite)
            sources = inputs.keep(given_or_piped(data, "seqgen train FILE"))
            if overwrite:
                check_replaced_model(name, [*sources, *([val] if val else [])])
            result = run(
                sources,
                architecture=model,
                preset=preset,
                name=name,
                config=nested,
                overwrite=overwrite,
                report=report,
                **common,
            )
    if json:
        put_record(result)
    if result.stopped == "interrupted":
        raise Interrupted(_stopped(result))
    if not quiet:
        _summary(result)


def _refuse(context: typer.Context, what: str, flags: tuple[str, ...]) -> None:
    for flag in flags:
        if context.params[flag]:
            raise UsageError(f"--{flag.replace('_', '-')} has no meaning with {what}")


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set takes KEY=VALUE, not {text!r}")
    return key.strip().replace("-", "_"), value.strip()


def _stopped(result: Any) -> str:
    return f"stopped after {result.steps} steps; go on with seqgen train --resume {result.name}"


def _summary(result: Any) -> None:
    if result.stopped == "stop-after":
        say(_stopped(result))
        return
    work = f"{result.tokens:,} tokens counted" if result.steps is None else f"{result.steps} steps"
    parts = [f"{result.name}: {work} in {result.seconds:.{0 if result.seconds > 9 else 1}f} s"]
    if result.val_loss is not None:
        parts.append(f"validation loss {result.val_loss:.4f} nats/token")
        parts.append(f"{result.val_bits_per_char:.4f} bits/char")
    say(", ".join(parts))
    if result.steps is not None:
        _table(result)
    say(f"try: seqgen sample -m {result.name}")


def _table(result: Any) -> None:
    """Show how a run ended, and what its model writes."""
    stopped = {"patience": "no better validation for a while"}.get(result.stopped, "budget spent")
    rows = {
        "parameters": f"{result.parameters:,}",
        "tokens": f"{result.tokens:,}, {result.tokens_per_second:,.0f} a second",
        "training loss": f"{result.train_loss:.4f} nats/token",
        "stopped": stopped,
    }
    if result.epoch_loss is not None:
        rows["last epoch"] = f"{result.epoch_loss:.4f} nats/token, "
        rows["last epoch"] += f"{result.epoch_loss_std:.4f} the spread of single steps"
    if result.val_loss is not None:
        rows["best"] = f"step {result.best_step}"
        rows["validation"] = f"{result.protocol}; {result.validation_seconds:.1f} s"
    for key, value in rows.items():
        say(f"  {key:<14} {value}")
    for line in (result.sample or "").strip("\n").splitlines()[:SAMPLE_LINES]:
        say(f"  | {line}")
