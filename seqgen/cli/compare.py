"""`seqgen compare`: several models on one text, in one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqgen.cli import completion, options
from seqgen.cli import sweep as sweeping
from seqgen.cli.continuous_cache import Cache, CacheFlatness, CacheStrength
from seqgen.cli.inputs import Inputs, file_name
from seqgen.cli.output import announce, put_record, say
from seqgen.cli.pairs import (
    HeldOutPairs,
    PairFiles,
    SourceFile,
    TargetFile,
    as_pairs,
    check_one_kind,
    check_translates,
    given_pairs,
    require_reads,
)
from seqgen.cli.tables import (
    MISSING,
    byte_size,
    count,
    duration,
    figure,
    interval,
    percentage,
    put_table,
    short_count,
)
from seqgen.cli.translations import Beams, MaxTokens, say_cut, translating
from seqgen.configs.cache import CacheOptions
from seqgen.configs.panels import MACHINE, MODEL, SCORES, TEXT
from seqgen.errors import UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.commands.loaded import LoadedModel
    from seqgen.commands.scoring.compare import Comparison
    from seqgen.commands.scoring.perplexity import Scoring
    from seqgen.data.pairs import Pairs


def compare(
    context: typer.Context,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Trained models: names, paths or mixtures A+B; with --sweep, text files.",
            metavar="MODEL",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Compare all trained models.", rich_help_panel=MODEL)
    ] = False,
    cache: Cache = None,
    cache_strength: CacheStrength = None,
    cache_flatness: CacheFlatness = None,
    sweep: sweeping.Architectures = None,
    parameters: sweeping.Sizes = None,
    seeds: sweeping.Seeds = None,
    steps: sweeping.Steps = None,
    epochs: sweeping.Epochs = None,
    minutes: sweeping.Minutes = None,
    set_: sweeping.Set = None,
    plot: sweeping.Plot = None,
    stride: options.Stride = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Text to compare on, or pairs for models that read those; - is standard input.",
            parser=file_name,
            metavar="FILE",
            rich_help_panel=TEXT,
            show_default="the text that all of them held out",
        ),
    ] = None,
    source: SourceFile = None,
    source_vectors: options.SourceVectors = None,
    target: TargetFile = None,
    bleu: Annotated[
        bool,
        typer.Option(
            "--bleu/--no-bleu",
            help="For translators: also translate the sources, and compare by BLEU.",
            rich_help_panel=SCORES,
        ),
    ] = True,
    beams: Beams = 5,
    max_tokens: MaxTokens = None,
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
    precision: options.ReadingPrecision = "auto",
    precisions: Annotated[
        str | None,
        typer.Option(
            help="Compare each model in several number formats, such as float32,bf16,int8.",
            metavar="KIND,KIND,...",
            rich_help_panel=MACHINE,
            show_default=False,
        ),
    ] = None,
    threads: options.Threads = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare models on one text in bits per byte, even if their tokenizers differ.

    An unknown token costs 8 bits for each of its bytes. Intervals are 95 %, from resampling
    about 200 blocks of lines. The p-value tests the difference from the best model on the same
    blocks. Translators are compared in bits per byte of the targets, given their sources, and by
    the BLEU of their translations.

    --sweep trains architectures at equal numbers of parameters, each under the same budget, and
    tabulates their bits per character. What a sweep has trained is kept: the same command goes on
    after an interruption, or adds sizes, seeds and architectures.
    """
    from seqgen.commands.loading import load
    from seqgen.commands.scoring import compare as comparing
    from seqgen.commands.scoring.perplexity import Scoring
    from seqgen.configs import DOCUMENTS, READING_PRECISIONS, choice

    if documents is not None:
        choice("--documents", documents, DOCUMENTS)
    sweeping.check_flags(context)
    choice("--precision", precision, READING_PRECISIONS)
    if sweep is not None:
        sweeping.sweep(context.params, models)
        return
    if bool(models) == all_:
        raise UsageError("give the models to compare, or --all")
    names = list(comparing.all_models()) if all_ else models
    looked_up = CacheOptions(
        cache=cache, cache_strength=cache_strength, cache_flatness=cache_flatness
    ).config
    if precisions is None:
        loaded = [load(name, device, precision, looked_up) for name in names]
    else:
        kinds = _kinds(precisions, precision)
        each = [(kind, load(name, device, kind, looked_up)) for name in names for kind in kinds]
        loaded = [replace(one, title=f"{one.name} in {kind}") for kind, one in each]
    check_one_kind(loaded)
    translates = loaded[0].given.is_source
    scoring = Scoring(documents=documents, stride=stride, batch_size=batch_size)
    files = PairFiles(data, source, source_vectors, target)
    text, what = _text(loaded, Inputs(quiet), files)
    if not quiet:
        _warn(loaded, text if what else None, scoring)
    search = {"beams": beams, "max_tokens": max_tokens, "batch_size": batch_size}
    translating_with = translating(["bleu"], **search) if translates and bleu else None
    how = {
        "scoring": scoring,
        "translating": translating_with,
        "seed": seed,
        "resamples": resamples,
    }
    records = comparing.compare(loaded, text, **how)
    if json:
        for one in records:
            put_record(one)
    else:
        _table(records)
    if not quiet:
        for one in records if translating_with else ():
            say_cut(one.model, one.cut, one.bleu["pairs"], one.max_tokens)
        if not json:
            _explain(records, what, verbose)


def _kinds(precisions: str, precision: str) -> list[str]:
    """Return the values of --precisions.

    Raises:
        UsageError: one is unknown or given twice, or --precision is given too.
    """
    from seqgen.configs import READING_PRECISIONS, choice

    if precision != "auto":
        raise UsageError("give --precision or --precisions, not both")
    allowed = [kind for kind in READING_PRECISIONS if kind != "auto"]
    kinds = [choice("--precisions", kind.strip(), allowed) for kind in precisions.split(",")]
    if len(set(kinds)) < len(kinds):
        raise UsageError("--precisions has a number format twice")
    return kinds


def _text(
    models: list[LoadedModel], inputs: Inputs, files: PairFiles
) -> tuple[str | Pairs, str | None]:
    """Return what models are compared on, and what was given for it; None if nothing was.

    Raises:
        UsageError: files are given that models of this kind do not read.
        SeqgenError: they cannot be read; or nothing is given and models hold out other texts.
    """
    from seqgen.commands.scoring import compare as comparing

    check_translates(models[0], files.of_pairs)
    if models[0].given.in_pairs:
        given = given_pairs(inputs, files)
        if given is not None:
            require_reads(models, given)
        newlines = "lf" if all(one.data.newlines == "lf" for one in models) else "keep"
        pairs = as_pairs(given or HeldOutPairs.by(models), newlines, loaded=models[0])
        return pairs, given and given.name
    if files.file is None:
        return comparing.common_text(models), None
    return inputs.read_text(files.file), files.file


def _warn(models: list[LoadedModel], given: str | Pairs | None, scoring: Scoring) -> None:
    """Say which models have seen a given text, and which cannot read it in this way."""
    from seqgen.commands.scoring.compare import newlines_warning, trained_on

    for warning in filter(None, map(scoring.warning, models)):
        announce(warning)
    if given is None:
        return
    if warning := newlines_warning(models, given):
        announce(warning)
    seen = dict.fromkeys(one.stored.name for one in models if trained_on(one, given))
    if seen:
        announce(f"{' and '.join(seen)} learnt from this very text: no fair comparison")


COLUMNS = {
    "model": lambda r: r.model,
    "parameters": lambda r: short_count(r.parameters),
    "bits/char": lambda r: figure(r.bits_per_char),
    "bits/byte": lambda r: figure(r.bits_per_byte),
    "unknowns": lambda r: figure(r.oov_bits_per_byte),
    "95 %": lambda r: MISSING if r.low is None else f"{figure(r.low)} to {figure(r.high)}",
    "p": lambda r: "best" if r.model == r.best else figure(r.p_value),
    "training": lambda r: duration(r.seconds),
    "tokens/s": lambda r: count(r.tokens_per_second),
    "size": lambda r: byte_size(r.size_bytes),
}


# Of models of pairs: perplexity after bits per byte, and what is known of their translations.
PERPLEXITY = {"perplexity": lambda r: figure(r.perplexity)}
BLEU = {
    "BLEU": lambda r: interval(r.bleu["score"], r.bleu["interval"], 2),
    "p of BLEU": lambda r: "best" if r.bleu["best"] else figure(r.bleu["p_value"]),
    "exact match": lambda r: percentage(r.bleu["exact_match"]),
}


def _columns(records: list[Comparison]) -> dict[str, Callable[[Any], str]]:
    """Return the columns that records of this kind fill."""
    if not hasattr(records[0], "perplexity"):
        return COLUMNS
    columns = {**dict(list(COLUMNS.items())[:2]), **PERPLEXITY, **COLUMNS}
    return columns if records[0].bleu is None else {**columns, **BLEU}


def _table(records: list[Comparison]) -> None:
    """Write a row a model, the best last."""
    ranked = sorted(records, key=lambda one: -one.bits_per_byte)
    columns = _columns(records)
    put_table(list(columns), [[show(one) for show in columns.values()] for one in ranked])


def _explain(records: list[Comparison], data: str | None, verbose: bool) -> None:
    """Say what the text was, and with `verbose` exactly how the figures were made."""
    what = "what all of them hold out" if data is None else data
    sizes = plural(records[0].characters, "character"), plural(records[0].bytes, "byte")
    say(f"text: {what}, {', '.join(sizes)}")
    for one in records if verbose else ():
        say(f"{one.model}: {one.signature}")
        if bleu := getattr(one, "bleu", None):
            say(f"{one.model}: BLEU|{bleu['signature']}")
