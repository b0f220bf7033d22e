"""`seqgen compare`: several models on one text, in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import options
from seqgen.cli.evaluate import read_text
from seqgen.cli.output import put_record, say
from seqgen.cli.tables import put_table
from seqgen.errors import UsageError

if TYPE_CHECKING:
    from seqgen.tasks.compare import Comparison
    from seqgen.tasks.loaded import LoadedModel


def compare(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Trained models, as -m takes them.", show_default=False),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All trained models.")] = False,
    data: Annotated[
        str | None,
        typer.Option(
            help="A text, - for standard input; what all models hold out if none.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    documents: options.Documents = None,
    stride: options.Stride = None,
    resamples: Annotated[int, typer.Option(help="Of the bootstrap.", min=2)] = 2000,
    seed: options.FixedSeed = 0,
    batch_size: options.BatchSize = 32,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare models on one text, in bits per byte, whatever their tokens are.

    What a model does not know costs 8 bits a byte on top. Intervals are 95 %, by resampling
    about 200 blocks of lines; p is of no difference to the best model, on the same blocks.
    """
    from seqgen.configs import DOCUMENTS, PRECISIONS, choice
    from seqgen.tasks import compare as comparing
    from seqgen.tasks.loaded import load
    from seqgen.tasks.perplexity import Scoring

    if documents is not None:
        choice("--documents", documents, DOCUMENTS)
    if bool(models) == all_:
        raise UsageError("give the models to compare, or --all")
    choice("--precision", precision, PRECISIONS)
    names = list(comparing.all_models()) if all_ else models
    loaded = [load(name, device, precision) for name in names]
    text = read_text(data)
    if text is None:
        text = comparing.common_text(loaded)
    else:
        text = comparing.as_read(loaded, text)
        if not quiet:
            _warn(loaded, text)
    found = comparing.compare(
        loaded,
        text,
        scoring=Scoring(documents=documents, stride=stride, batch_size=batch_size),
        seed=seed,
        resamples=resamples,
    )
    if json:
        for one in found:
            put_record(one)
    else:
        _table(found)
        if not quiet:
            _explain(found, data)


def _warn(models: list[LoadedModel], text: str) -> None:
    """Say which models have seen the text."""
    from seqgen.tasks.compare import trained_on

    seen = [loaded.stored.name for loaded in models if trained_on(loaded, text)]
    if seen:
        say(f"{' and '.join(seen)} learnt from this very text: no fair comparison")


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


COLUMNS = {
    "model": lambda r: r.model,
    "parameters": lambda r: f"{r.parameters:,}",
    "bits/char": lambda r: f"{r.bits_per_char:.4f}",
    "bits/byte": lambda r: f"{r.bits_per_byte:.4f}",
    "+ unknowns": lambda r: f"{r.oov_bits_per_byte:.4f}",
    "= total": lambda r: f"{r.total_bits_per_byte:.4f}",
    "95 %": lambda r: "-" if r.low is None else f"{r.low:.4f} to {r.high:.4f}",
    "p": lambda r: "best" if r.model == r.best else _figure(r.p_value, ".4f"),
    "training": lambda r: "-" if r.seconds is None else f"{r.seconds:,.1f} s",
    "tokens/s": lambda r: _figure(r.tokens_per_second, ",.0f"),
    "size": lambda r: _size(r.size_bytes),
}


def _table(found: list[Comparison]) -> None:
    """Write a row a model, the best last."""
    ranked = sorted(found, key=lambda one: -one.total_bits_per_byte)
    put_table(list(COLUMNS), [[show(one) for show in COLUMNS.values()] for one in ranked])


def _explain(found: list[Comparison], data: str | None) -> None:
    """Say what the text was, and how the figures were made."""
    what = "what all of them hold out" if data is None else data
    say(f"text: {what}, {found[0].characters:,} characters, {found[0].bytes:,} bytes")
    for one in found:
        say(f"{one.model}: {one.signature}")
