"""`seqgen models`: what has been trained, and what can be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from seqgen import registry, store
from seqgen.cli import options
from seqgen.cli.curve import curve
from seqgen.cli.output import console, is_terminal, one_line, put, put_record, say, standard_output
from seqgen.errors import SeqgenError, UsageError

app = typer.Typer(help="List, show and remove trained models; list architectures.")

Name = Annotated[
    str | None, typer.Argument(help="A name or a path; the latest if none.", show_default=False)
]


@app.callback(invoke_without_command=True)
def models(
    context: typer.Context,
    architectures: Annotated[
        bool, typer.Option("--architectures", help="List what can be trained.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """List trained models, the latest first."""
    if architectures:
        if context.invoked_subcommand:
            raise UsageError("--architectures stands alone: seqgen models --architectures")
        rows = [{"name": a.name, "summary": a.summary} for a in registry.ARCHITECTURES.values()]
        _show(rows, json, quiet)
    elif context.invoked_subcommand is None:
        _show(list(map(describe, store.list_models())), json, quiet)


@app.command("list")
def list_models(json: options.Json = False, quiet: options.Quiet = False) -> None:
    """List trained models, the latest first."""
    _show(list(map(describe, store.list_models())), json, quiet)


@app.command()
def show(
    name: Name = None,
    samples: Annotated[
        bool, typer.Option("--samples", help="What it wrote while it learned, step by step.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show one model: its configuration, its data, how its training went; also while it goes on."""
    from seqgen.tokenizers import load_tokenizer

    model = store.find(name)
    if samples:
        _samples(model, json, quiet)
        return
    config, record = model.config, model.record
    tokenizer = load_tokenizer(model.path / "tokenizer").describe()
    if json:
        facts = {"config": config, "training": record, "tokenizer_facts": tokenizer}
        put_record({**describe(model), **facts})
        return
    facts = {
        **describe(model),
        **{k: v for part in ("model", "training", "data") for k, v in config[part].items()},
        **{f"tokenizer: {k}": v for k, v in tokenizer.items()},
        **{f"result: {k}": v for k, v in (record.get("result") or {}).items()},
        **{f"{grams['order']}-grams": _ngrams(grams) for grams in record.get("ngrams") or ()},
    }
    width = max(map(len, facts))
    for key, value in facts.items():
        if value is not None:
            put(f"{key:<{width}}  {_in_line(value)}\n")
    for line in _loss_curve(model):
        put(f"{line}\n")


def _in_line(value: Any) -> str:
    return one_line(value) if isinstance(value, str) else str(value)


def _loss_curve(model: store.StoredModel) -> list[str]:
    """Return the picture of a model's losses by step, if it was trained by steps."""
    records = model.logged(store.METRICS)
    losses = {
        key: [(record["step"], record[key]) for record in records if key in record]
        for key in ("train_loss", "val_loss")
    }
    width = max(20, min(100, console(sys.stdout).width - 10)) if is_terminal(sys.stdout) else 64
    lines = curve([(".", losses["train_loss"]), ("o", losses["val_loss"])], width)
    title = "nats/token by step: . in training, o in validation (in passing)"
    return ["", title, *lines] if lines else []


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


def _ngrams(grams: dict[str, Any]) -> str:
    """Say what is stored of the n-grams of one order."""
    parts = [f"{grams['stored']:,} stored of {grams['possible']:.4g} possible"]
    if grams["held_out_unseen"] is not None:
        parts.append(f"{grams['held_out_unseen']:.2%} of the held-out ones never seen")
    if grams["discounts"]:
        parts.append("discounts " + " ".join(f"{d:.6g}" for d in grams["discounts"]))
    return "; ".join(parts)


@app.command()
def remove(
    names: Annotated[list[str], typer.Argument(help="Names or paths.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Delete trained models, and nothing that seqgen did not write."""
    chosen = {store.check_removable(model): model for model in map(store.find, names)}
    if not yes:
        if not is_terminal(sys.stdin):
            raise UsageError("give --yes: there is nobody to ask")
        if not typer.confirm(f"Delete {', '.join(map(str, chosen))}?", err=True):
            raise SeqgenError("nothing was removed")
    for place, model in chosen.items():
        store.remove(model)
        if json:
            put_record({"name": model.name, "path": str(place)})
        if not quiet:
            say(f"removed {place}")


@app.command()
def path(name: Name = None, json: options.Json = False, quiet: options.Quiet = False) -> None:
    """Print the folder of a model."""
    model = store.find(name)
    if json:
        put_record({"name": model.name, "path": str(model.path)})
    else:
        put(f"{model.path}\n")


@app.command()
def cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="Delete the tokens; they can be made again.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """List what is kept of texts: large ones as tokens, and those from standard input.

    A text that came by standard input is kept for --resume, and --clear leaves it. --clear also
    takes away what killed runs left behind.
    """
    if clear:
        gone = [(path, size) for path, size in _sizes() if path.parent == store.tokens_folder()]
        store.clear_tokens()
        left = store.clean()
        size = sum(size for _, size in gone)
        if json:
            put_record({"removed": len(gone), "bytes": size, "leftovers": len(left)})
        if not quiet:
            say(f"removed {len(gone)} files, {size:,} bytes")
            if left:
                say(f"removed {len(left)} leftovers of runs that were killed")
        return
    rows = [{"kind": path.parent.name, "bytes": size, "path": str(path)} for path, size in _sizes()]
    if json:
        for row in rows:
            put_record(row)
        return
    for row in rows:
        put(f"{row['kind']:<6}  {row['bytes']:>15,}  {row['path']}\n")
    if not rows and not quiet:
        say("the cache is empty")


def _sizes() -> list[tuple[Path, int]]:
    return [(path, path.stat().st_size) for path in store.cached_files()]


def describe(model: store.StoredModel) -> dict[str, Any]:
    """Return the keys of `seqgen models --json`; null where a model does not tell."""
    facts: dict[str, Any] = dict.fromkeys(
        ("name", "path", "architecture", "parameters", "tokenizer", "val_bits_per_char", "created")
    )
    facts |= {"name": model.name, "path": str(model.path)}
    try:
        config, record = model.config, model.record
    except SeqgenError:
        return facts
    result = record.get("result")
    result = result if isinstance(result, dict) else {}
    return facts | {
        "architecture": config.get("architecture"),
        "parameters": record.get("parameters"),
        "tokenizer": _tokenizer_kind(model) or config.get("data", {}).get("tokenizer"),
        "val_bits_per_char": result.get("val_bits_per_char"),
        "created": record.get("created"),
    }


def _tokenizer_kind(model: store.StoredModel) -> str | None:
    """Return the kind of a model's tokenizer: the configuration may name it by a path."""
    from seqgen.tokenizers import read_facts

    try:
        return read_facts(model.path / "tokenizer").get("kind")
    except (OSError, ValueError):
        return None


def _show(rows: list[dict[str, Any]], json: bool, quiet: bool) -> None:
    if json:
        for row in rows:
            put_record(row)
        return
    if not rows:
        if not quiet:
            say("there is no trained model yet; run seqgen train FILE")
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE if is_terminal(sys.stdout) else None, pad_edge=False)
    for name in rows[0]:
        if name != "path":
            table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(v) for k, v in row.items() if k != "path"))
    console(standard_output()).print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
