"""`seqgen perplexity`: score text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from seqgen.cli import options
from seqgen.cli.continuous_cache import Cache, CacheFlatness, CacheStrength
from seqgen.cli.dynamic import Decay, Rate, Segment, dynamic_of
from seqgen.cli.fit import HELD_OUT, fit_on
from seqgen.cli.help import flag, value
from seqgen.cli.inputs import Input, Inputs, file_name, piped_input
from seqgen.cli.kinds import served
from seqgen.cli.output import announce, one_line, put, put_record, say, say_protocols
from seqgen.cli.pairs import (
    WithVectors,
    as_text,
    beside,
    check_one_kind,
    check_vectors,
    held_out_by,
)
from seqgen.cli.source_attention import Picture, Shown
from seqgen.cli.tables import count, figure, percentage, put_table
from seqgen.configs.cache import CacheOptions
from seqgen.configs.decoding import Heads, LookOptions
from seqgen.configs.panels import MODEL, OUTPUT, SCORES, TEXT
from seqgen.errors import SeqgenError, UsageError
from seqgen.files import title_of

if TYPE_CHECKING:
    from seqgen.commands.loaded import LoadedModel
    from seqgen.commands.scoring.perplexity import Perplexity, Scoring
    from seqgen.commands.scoring.surprisal import Line
    from seqgen.commands.writing.records import Look
    from seqgen.data.text import Surveyor

T = TypeVar("T")


def perplexity(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text or token files, or - for standard input. Without a FILE, the model's "
            "held-out text is scored.",
            parser=file_name,
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    model: options.Models = None,
    cache: Cache = None,
    cache_strength: CacheStrength = None,
    cache_flatness: CacheFlatness = None,
    source_vectors: options.SourceVectors = None,
    label: Annotated[
        list[str] | None,
        value(
            "NAME",
            TEXT,
            "Of a model trained with --labels: FILE is plain text, and all its lines have this "
            "label. Can be repeated.",
            default=False,
        ),
    ] = None,
    documents: options.Documents = None,
    stride: options.Stride = None,
    per_line: Annotated[
        bool,
        flag(
            "--per-line",
            OUTPUT,
            "Score each line alone; print its bits per character, a tab and the line.",
        ),
    ] = False,
    per_token: Annotated[
        bool, flag("--per-token", OUTPUT, "Print the bits of each token, a tab and the token.")
    ] = False,
    show: Annotated[
        bool,
        flag("--show", OUTPUT, "Print the text, coloured by how surprising each token is."),
    ] = False,
    top5: Annotated[
        bool,
        flag(
            "--top5", SCORES, "Report top-5 accuracy also for n-grams over words, where it is slow."
        ),
    ] = False,
    fit: Annotated[
        str | None,
        value(
            "FILE",
            MODEL,
            "Fit the weights of the mixture -m A+B on this text, and with --cache its strength and "
            "flatness; print the options to use. FILE may be held-out, the model's held-out text.",
            default=False,
            parser=file_name,
        ),
    ] = None,
    dynamic: Rate = None,
    dynamic_decay: Decay = None,
    dynamic_segment: Segment = None,
    source: Annotated[
        str | None,
        value(
            "FILE",
            TEXT,
            "Line n of this file is the source of line n of FILE, for a model of pairs.",
            default=False,
            parser=file_name,
        ),
    ] = None,
    attention: options.Attention = False,
    plot: options.Plot = None,
    align: options.Align = False,
    align_words: options.AlignWords = False,
    layer: options.Layer = None,
    head: options.Head = None,
    batch_size: options.BatchSize = 32,
    device: options.Device = "auto",
    precision: options.ReadingPrecision = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Score text: perplexity and bits per token, word, character and byte; accuracy.

    Bits per character and byte include 8 bits for each byte of an unknown token. With several
    files or several models, the result is a table. With --per-line and several models, each line
    is preceded by the name of the model that predicts it best. --attention and --align are of
    single pairs and imply --per-line. Masked models have a pseudo-perplexity.
    """
    given = dict(locals())
    from seqgen.commands.both_ways import load_directions
    from seqgen.commands.loading import load
    from seqgen.commands.scoring.perplexity import Scoring
    from seqgen.commands.writing.from_source import check_sources
    from seqgen.configs import DOCUMENTS, READING_PRECISIONS, choice

    if documents is not None:
        choice("--documents", documents, DOCUMENTS)
    if served(context, given):
        return
    of_source = Picture(plot=plot).of(
        LookOptions(
            attention=attention,
            align=align,
            align_words=align_words,
            heads=Heads(layer=layer, head=head),
        )
    )
    per_line = per_line or of_source.looks
    _check(model, documents, per_line, per_token, show, fit)
    if of_source.looks and len(model or []) > 1:
        raise UsageError(f"{of_source.given[0]} takes one model")
    device_and_precision = device, choice("--precision", precision, READING_PRECISIONS)
    if fit is not None and (cache_strength, cache_flatness) != (None, None):
        raise UsageError("--fit finds --cache-strength and --cache-flatness: leave them out")
    looked_up = CacheOptions(
        cache=cache, cache_strength=cache_strength, cache_flatness=cache_flatness
    ).config
    of_one = per_token or show or fit is not None or dynamic is not None
    models = [
        loaded.with_labels(label or ())
        for name in model or [None]
        for loaded in (
            [load(name, *device_and_precision, looked_up)]
            if of_one
            else load_directions(name, *device_and_precision, looked_up)
        )
    ]
    learns = dynamic_of(dynamic, dynamic_decay, dynamic_segment, per_line)
    how = {"documents": documents, "stride": stride, "top5": top5, "batch_size": batch_size}
    scoring = Scoring(**how, dynamic=learns)
    for loaded in models:
        scoring.check(loaded)
        if not quiet and (warning := scoring.warning(loaded)):
            announce(warning)
    check_one_kind(models)
    check_sources(of_source, models[0])
    inputs = Inputs(quiet)
    if not files and not fit and piped_input() is not None:
        files = ["-"]
    sources = inputs.open(files or ())
    looks = Shown(of_source, plot, maps=not json and not quiet, inputs=sources)
    if source is not None:
        sources = [beside(models[0], inputs.open_one(source), sources)]
    if fit is not None:
        text = held_out_by(models, quiet=True) if fit == HELD_OUT else inputs.open_one(fit)
        models = [fit_on(text, models[0], scoring, json, quiet)]
        if not sources:
            return
    if source_vectors is not None:
        sources = [_with_vectors(models, sources, source_vectors)]
    if label and not sources:
        raise UsageError("--label goes with a FILE of plain text: held-out lines have their own")
    sources = sources or [held_out_by(models, quiet)]
    if per_line:
        _per_line(models, sources, scoring, looks, json, verbose, quiet)
    elif per_token or show:
        _per_token(models[0], sources, scoring, show, json, verbose, quiet)
    else:
        _whole(models, sources, scoring, json, verbose, quiet)


def _with_vectors(
    models: Sequence[LoadedModel], sources: Sequence[Input], vectors: str
) -> WithVectors:
    """Return the one FILE of targets with its vectors.

    Raises:
        UsageError: there is no FILE, or more than one.
        SeqgenError: a model does not read vectors.
    """
    check_vectors(vectors)
    if len(sources) != 1:
        raise UsageError("--source-vectors goes with one FILE: the targets, a line each")
    for loaded in models:
        loaded.given.require_vectors()
    return WithVectors(sources[0], vectors)


def _whole(
    models: list[LoadedModel],
    sources: list[Input],
    scoring: Scoring,
    json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Write a record, or a row, for each model and each text."""
    from seqgen.commands.scoring.perplexity import perplexity as score

    records = []
    for loaded in models:
        for source in sources:
            text = as_text(loaded, source)
            records.append(score(loaded, text, file=source.name, scoring=scoring))
            if json:
                put_record(records[-1])
    if not json:
        _table(records, verbose, quiet)


def _check(
    model: list[str] | None,
    documents: str | None,
    per_line: bool,
    per_token: bool,
    show: bool,
    fit: str | None,
) -> None:
    """Refuse flags that contradict each other."""
    ways = {"--per-line": per_line, "--per-token": per_token, "--show": show, "--fit": bool(fit)}
    given = [flag for flag, asked_for in ways.items() if asked_for]
    if len(given) > 1:
        raise UsageError(f"give {given[0]} or {given[1]}, not both")
    if given and given != ["--per-line"] and len(model or []) > 1:
        raise UsageError(f"{given[0]} takes one model")
    if per_line and documents == "stream":
        raise UsageError("--per-line scores each line alone: leave out --documents stream")


def _some(records: Iterator[T], file: str) -> Iterator[T]:
    """Yield what was scored; refuse nothing at all, as perplexity does.

    Raises:
        SeqgenError: there was nothing.
    """
    first = next(records, None)
    if first is None:
        raise SeqgenError(f"{title_of(file)} is empty: there is nothing to score")
    return chain([first], records)


def _per_line(
    models: list[LoadedModel],
    sources: list[Input],
    scoring: Scoring,
    looks: Shown,
    json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    from seqgen.commands.scoring.surprisal import whose_line
    from seqgen.data.text import Surveyor

    scoring = replace(scoring, documents="line")
    names = [loaded.stored.name for loaded in models]
    if len(models) > 1 and not json and not quiet:
        say("\t".join(["best", *(f"bits/char {name}" for name in names), "line"]))
    for source in sources:
        file, surveyor = source.name, Surveyor()
        text = as_text(models[0], source, surveyor.watch)
        for liked in _some(whose_line(models, text, scoring), file):
            look = looks.at(models[0], liked.lines[0])
            looks.put(look, f"line {liked.lines[0].index}")
            if json:
                _put_line_record(file, models, liked.best, liked.lines, scoring, look)
                continue
            bits = [figure(line.totals.bits_per_char) for line in liked.lines]
            if len(models) > 1:
                bits.insert(0, names[liked.best])
            pairs = [] if look is None or look.alignment is None else [look.alignment]
            put("\t".join([*bits, one_line(liked.lines[0].text), *pairs]) + "\n")
        if not quiet:
            _sign(models, file, scoring, surveyor, verbose)


def _put_line_record(
    file: str,
    models: list[LoadedModel],
    best: int,
    lines: tuple[Line, ...],
    scoring: Scoring,
    look: Look | None,
) -> None:
    """Write the record of a line under the model that likes it best."""
    from seqgen.commands.scoring.surprisal import line_record

    record = line_record(file, models[best], lines[best], scoring)
    if len(models) > 1:
        names = (loaded.stored.name for loaded in models)
        record["best"] = models[best].stored.name
        record["bits"] = {name: line.totals.bits for name, line in zip(names, lines, strict=True)}
    put_record(record if look is None else {**record, **look.keys()})


def _per_token(
    loaded: LoadedModel,
    sources: list[Input],
    scoring: Scoring,
    show: bool,
    json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    from seqgen.cli.surprisal import put_coloured
    from seqgen.commands.scoring.perplexity import protocol
    from seqgen.commands.scoring.surprisal import score_tokens
    from seqgen.data.text import Surveyor

    scoring = scoring.check(loaded)
    about = protocol(loaded, scoring)
    for source in sources:
        file, surveyor = source.name, Surveyor()
        text = as_text(loaded, source, surveyor.watch)
        tokens = _some(score_tokens(loaded, text, scoring), file)
        if show and not json:
            put_coloured(tokens, quiet)
        else:
            for token in tokens:
                if json:
                    where = {"file": file, "model": loaded.stored.name}
                    put_record({**where, **asdict(token), "protocol": about})
                else:
                    put(f"{figure(token.surprisal_bits)}\t{one_line(token.token)}\n")
        if not quiet:
            _sign([loaded], file, scoring, surveyor, verbose)


def _sign(
    models: list[LoadedModel], file: str, scoring: Scoring, surveyor: Surveyor, verbose: bool
) -> None:
    """Say how figures were made, with `verbose` exactly, once the text has passed."""
    from seqgen.commands.scoring.perplexity import protocol, scoring_signature

    for loaded in models:
        resolved, data = scoring.check(loaded), surveyor.facts.sha256
        say(f"{loaded.stored.name}: {protocol(loaded, resolved)}")
        if verbose:
            say(f"{file}: {scoring_signature('perplexity', loaded, resolved, data)}")


COLUMNS = {
    "file": lambda r: r.file,
    "model": lambda r: r.model,
    "tokens": lambda r: count(r.tokens),
    "nats/token": lambda r: figure(r.nats_per_token),
    "perplexity": lambda r: figure(r.perplexity),
    "per word": lambda r: figure(r.perplexity_per_word),
    "bits/char": lambda r: figure(r.bits_per_char),
    "bits/byte": lambda r: figure(r.bits_per_byte),
    "unknowns": lambda r: figure(r.oov_bits_per_byte),
    "accuracy": lambda r: percentage(r.accuracy),
    "top 5": lambda r: percentage(r.top5_accuracy),
    "oov": lambda r: count(r.oov),
}


def _table(records: list[Perplexity], verbose: bool, quiet: bool) -> None:
    several = len({record.model for record in records}) > 1
    unknown = all(record.top5_accuracy is None for record in records)
    paid = any(record.oov_bytes for record in records)
    hidden = {"model": not several, "top 5": unknown, "unknowns": not paid}
    left_out = {name for name, out in hidden.items() if out}
    columns = {name: show for name, show in COLUMNS.items() if name not in left_out}
    rows = [[show(record) for show in columns.values()] for record in records]
    put_table(list(columns), rows, left=2 if several else 1)
    if not quiet:
        say_protocols(records, verbose)
