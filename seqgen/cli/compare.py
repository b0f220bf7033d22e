"""`seqgen compare`: several models on one text, in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import completion, options
from seqgen.cli.help import MODEL, SCORES, TEXT
from seqgen.cli.inputs import Inputs, file_name
from seqgen.cli.output import put_record, say
from seqgen.cli.tables import byte_size, count, duration, figure, put_table, short_count
from seqgen.errors import UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.tasks.loaded import LoadedModel
    from seqgen.tasks.scoring.compare import Comparison
    from seqgen.tasks.scoring.perplexity import Scoring


def compare(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Trained models: names, paths or mixtures A+B.",
            metavar="MODEL",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Compare all trained models.", rich_help_panel=MODEL)
    ] = False,
    stride: options.Stride = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Text to compare on; - is standard input.",
            parser=file_name,
            metavar="FILE",
            rich_help_panel=TEXT,
            show_default="the text that all of them held out",
        ),
    ] = None,
    documents: options.Documents = None,
    resamples: Annotated[
        int,
        typer.Option(
            help="Number of bootstrap resamples for intervals and p-values.",
            min=2,
            metavar="N",
            rich_help_panel=SCORES,
        ),
    ] = 2000,
    seed: options.FixedSeed = 0,
    batch_size: options.BatchSize = 32,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare models on one text in bits per byte, even if their tokenizers differ.

    An unknown token costs 8 bits for each of its bytes. Intervals are 95 %, from resampling
    about 200 blocks of lines. The p-value tests the difference from the best model on the same
    blocks.
    """
    from seqgen.configs import DOCUMENTS, PRECISIONS, choice
    from seqgen.tasks.loaded import load
    from seqgen.tasks.scoring import compare as comparing
    from seqgen.tasks.scoring.perplexity import Scoring

    if documents is not None:
        choice("--documents", documents, DOCUMENTS)
    if bool(models) == all_:
        raise UsageError("give the models to compare, or --all")
    choice("--precision", precision, PRECISIONS)
    names = list(comparing.all_models()) if all_ else models
    loaded = [load(name, device, precision) for name in names]
    for one in loaded:
        one.require_text("compare")
    scoring = Scoring(documents=documents, stride=stride, batch_size=batch_size)
    text = comparing.common_text(loaded) if data is None else Inputs(quiet).read_text(data)
    if not quiet:
        _warn(loaded, None if data is None else text, scoring)
    found = comparing.compare(loaded, text, scoring=scoring, seed=seed, resamples=resamples)
    if json:
        for one in found:
            put_record(one)
    else:
        _table(found)
        if not quiet:
            _explain(found, data, verbose)


def _warn(models: list[LoadedModel], text: str | None, scoring: Scoring) -> None:
    """Say which models have seen a given text, and which cannot read it in this way."""
    from seqgen.tasks.scoring.compare import newlines_warning, trained_on

    for warning in filter(None, map(scoring.warning, models)):
        say(warning)
    if text is None:
        return
    if warning := newlines_warning(models, text):
        say(warning)
    seen = [loaded.stored.name for loaded in models if trained_on(loaded, text)]
    if seen:
        say(f"{' and '.join(seen)} learnt from this very text: no fair comparison")


COLUMNS = {
    "model": lambda r: r.model,
    "parameters": lambda r: short_count(r.parameters),
    "bits/char": lambda r: figure(r.bits_per_char),
    "bits/byte": lambda r: figure(r.bits_per_byte),
    "+ unknowns": lambda r: figure(r.oov_bits_per_byte),
    "= total": lambda r: figure(r.total_bits_per_byte),
    "95 %": lambda r: "-" if r.low is None else f"{figure(r.low)} to {figure(r.high)}",
    "p": lambda r: "best" if r.model == r.best else figure(r.p_value),
    "training": lambda r: duration(r.seconds),
    "tokens/s": lambda r: count(r.tokens_per_second),
    "size": lambda r: byte_size(r.size_bytes),
}


def _table(found: list[Comparison]) -> None:
    """Write a row a model, the best last."""
    ranked = sorted(found, key=lambda one: -one.total_bits_per_byte)
    put_table(list(COLUMNS), [[show(one) for show in COLUMNS.values()] for one in ranked])


def _explain(found: list[Comparison], data: str | None, verbose: bool) -> None:
    """Say what the text was, and with `verbose` exactly how the figures were made."""
    what = "what all of them hold out" if data is None else data
    sizes = plural(found[0].characters, "character"), plural(found[0].bytes, "byte")
    say(f"text: {what}, {', '.join(sizes)}")
    for one in found if verbose else ():
        say(f"{one.model}: {one.signature}")
