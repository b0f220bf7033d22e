"""`seqgen eval`: everything that can be measured of trained models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqgen.cli import options, translations
from seqgen.cli.continuous_cache import Cache, CacheFlatness, CacheStrength
from seqgen.cli.help import flag, value
from seqgen.cli.inputs import Input, Inputs, file_name
from seqgen.cli.kinds import served
from seqgen.cli.output import put_record, say
from seqgen.cli.pairs import (
    PairFiles,
    SourceFile,
    TargetFile,
    as_pairs,
    check_one_kind,
    check_translates,
    given_pairs,
    held_out_by,
    require_reads,
)
from seqgen.cli.tables import MISSING, count, figure, interval, percentage, put_table
from seqgen.configs.cache import CacheOptions
from seqgen.configs.panels import SCORES
from seqgen.errors import UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.commands.loaded import LoadedModel
    from seqgen.commands.scoring.evaluate import Evaluation, Measurements
    from seqgen.commands.scoring.minimal_pairs import Pair


def evaluate(
    context: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(
            help="Text to measure on, pairs for translators, or labelled examples for classifiers "
            "and taggers; - is standard input. Without a FILE, each model's held-out part is used.",
            parser=file_name,
            metavar="[FILE]",
            show_default=False,
        ),
    ] = None,
    model: options.Models = None,
    cache: Cache = None,
    cache_strength: CacheStrength = None,
    cache_flatness: CacheFlatness = None,
    perplexity: Annotated[
        bool, flag("--perplexity", SCORES, "Score the text, as `seqgen perplexity` does.")
    ] = False,
    bleu: Annotated[
        bool,
        flag(
            "--bleu",
            SCORES,
            "Continue passages of the text, and score the continuations against the real ones by "
            "BLEU. For translators: translate the sources, and score the translations.",
        ),
    ] = False,
    diversity: Annotated[
        bool,
        flag(
            "--diversity",
            SCORES,
            "Measure how varied the texts written are: distinct n-grams, self-BLEU, repetition, "
            "Zipf exponent.",
        ),
    ] = False,
    pairs: Annotated[
        list[str] | None,
        value(
            "FILE",
            SCORES,
            "Count how often the first text of a pair is more probable: lines "
            "better<TAB>worse[<TAB>group]; - is standard input.",
            default=False,
            parser=file_name,
        ),
    ] = None,
    source: SourceFile = None,
    source_vectors: options.SourceVectors = None,
    target: TargetFile = None,
    metric: translations.Metrics = None,
    by_length: translations.ByLength = None,
    beams: translations.Beams = 5,
    length_norm: translations.LengthNorm = "avg",
    alpha: translations.Alpha = 1.0,
    max_tokens: translations.MaxTokens = None,
    documents: options.Documents = None,
    stride: options.Stride = None,
    passages: Annotated[int, value("N", SCORES, "Largest number of passages to continue.")] = 100,
    seed: options.FixedSeed = 0,
    batch_size: options.BatchSize = 32,
    device: options.Device = "auto",
    precision: options.ReadingPrecision = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure everything that applies to a model, or only what is asked for.

    Several models are shown side by side. --bleu and --diversity use passages of 64 words, taken
    evenly from the text: the model reads the first 32 words and writes as many tokens as the
    other 32 have, at temperature 1. A model of lines continues the first half of a line. A
    translator translates the sources by beam search. Of a classifier or a tagger, accuracy, F1
    and what it confuses are shown.
    """
    if served(context, locals()):
        return
    from seqgen.commands.loading import load
    from seqgen.commands.scoring.evaluate import Measurements
    from seqgen.commands.scoring.evaluate import evaluate as measure
    from seqgen.commands.scoring.perplexity import Scoring
    from seqgen.commands.writing.continuations import Protocol
    from seqgen.configs import DOCUMENTS, READING_PRECISIONS, choice

    if documents is not None:
        choice("--documents", documents, DOCUMENTS)
    bleu = bleu or bool(metric) or by_length is not None
    everything = not (perplexity or bleu or diversity or pairs)
    files = PairFiles(file, source, source_vectors, target)
    _check_files(files, pairs or [], perplexity or bleu or diversity)
    inputs = Inputs(quiet)
    search = {"beams": beams, "length_norm": length_norm, "alpha": alpha, "max_tokens": max_tokens}
    to_measure = Measurements(
        perplexity=perplexity or everything,
        bleu=bleu or everything,
        diversity=diversity or everything,
        pairs=_pairs(inputs.open(pairs or ())),
        scoring=Scoring(documents=documents, stride=stride, batch_size=batch_size),
        protocol=Protocol(passages=passages, seed=seed, batch_size=batch_size),
        translating=translations.translating(metric, by_length, batch_size=batch_size, **search),
        lenient=everything,
    )
    choice("--precision", precision, READING_PRECISIONS)
    looked_up = CacheOptions(
        cache=cache, cache_strength=cache_strength, cache_flatness=cache_flatness
    ).config
    models = [load(name, device, precision, looked_up) for name in model or [None]]
    check_one_kind(models)
    scoring_option = "--metric" if metric else "--by-length" if by_length else None
    _check_for_kind(models[0], pairs, files.of_pairs or scoring_option)
    read = _reader(models, inputs, files, to_measure)
    evaluations = []
    for loaded in models:
        to_measure.scoring.check(loaded)
        if not quiet:
            _announce(loaded, to_measure)
        evaluations.append(measure(loaded, *read(loaded), to_measure))
        if json:
            put_record(evaluations[-1])
    if not json:
        _table(evaluations, verbose and not quiet)
    if models[0].given.is_source and not quiet:
        for one in filter(lambda one: one.translations, evaluations):
            scores = one.translations
            translations.say_cut(one.model, scores["cut"], scores["pairs"], scores["max_tokens"])


def _check_files(files: PairFiles, pairs: list[str], reads: bool) -> None:
    """Refuse standard input that is wanted twice, and a FILE that nothing reads."""
    if "-" in (files.file, files.source, files.target) and "-" in pairs:
        raise UsageError("standard input can be only one of the files")
    if files.any and pairs and not reads:
        raise UsageError("--pairs alone reads no FILE: add --perplexity, --bleu or --diversity")


def _check_for_kind(loaded: LoadedModel, pairs: list[str] | None, of_pairs: str | None) -> None:
    """Refuse options that are for the other kind of model than those that are measured."""
    if loaded.given.is_source and pairs:
        loaded.given.require_nothing("--pairs")
    check_translates(loaded, of_pairs)


Read = Callable[["LoadedModel"], tuple[Any, str | None]]


def _reader(
    models: Sequence[LoadedModel],
    inputs: Inputs,
    files: PairFiles,
    to_measure: Measurements,
) -> Read:
    """Return what gives each model the text or the pairs that it is measured on, and its name.

    Args:
        models: all of text, or all of pairs.
        inputs: opens files.
        files: what was given.
        to_measure: what is to be measured.

    Raises:
        SeqgenError: what was given cannot be read; or several models hold out different texts.
    """
    if not files.any and (len(models) == 1 or not to_measure.needs_text):
        if to_measure.needs_text:
            held_out_by(models, quiet=True)  # a model without any is refused before the work
        return lambda loaded: (None, None)
    if models[0].given.in_pairs:
        given = given_pairs(inputs, files) or held_out_by(models, quiet=True)
        require_reads(models, given)
        # A line that is no pair is refused before the work.
        for _ in as_pairs(given, "keep", loaded=models[0]):
            pass
        return lambda loaded: (as_pairs(given, loaded.data.newlines, loaded=loaded), given.name)
    if files.file is not None:
        text, name = inputs.read_text_or_tokens(files.file), files.file
    else:
        text, name = held_out_by(models, quiet=True).text_or_tokens(), "validation"
    return lambda loaded: (text, name)


def _announce(loaded: LoadedModel, to_measure: Measurements) -> None:
    say(f"measuring {loaded.stored.name}")
    if to_measure.perplexity and (warning := to_measure.scoring.warning(loaded)):
        say(warning)


def _pairs(sources: list[Input]) -> dict[str, list[Pair]]:
    from seqgen.commands.scoring.minimal_pairs import read_pairs

    return {source.title: read_pairs(source.chunks(), source.title) for source in sources}


Row = tuple[str, Callable[[dict[str, Any]], str]]
PERPLEXITY: tuple[Row, ...] = (
    ("perplexity", lambda r: figure(r["perplexity"])),
    ("perplexity per word", lambda r: figure(r["perplexity_per_word"])),
    ("bits/char", lambda r: figure(r["bits_per_char"])),
    ("bits/byte", lambda r: figure(r["bits_per_byte"])),
    ("unknowns in bits/byte", lambda r: figure(r["oov_bits_per_byte"])),
    ("accuracy", lambda r: percentage(r["accuracy"])),
    ("unknown tokens", lambda r: count(r["oov"])),
)
PAIR_PERPLEXITY: tuple[Row, ...] = (
    ("unknown source tokens", lambda r: count(r["source_unknown"])),
)
DIVERSITY: tuple[Row, ...] = tuple(
    (label, lambda r, name=name: figure(r[name]))
    for label, name in (
        ("distinct words", "distinct_1"),
        ("distinct 2-grams", "distinct_2"),
        ("distinct 3-grams", "distinct_3"),
        ("self-BLEU", "self_bleu"),
        ("repeated 4-grams", "repetition"),
        ("Zipf exponent", "zipf"),
    )
)


def _table(evaluations: list[Evaluation], verbose: bool) -> None:
    """Write a row a figure and a column a model; what the text itself has stands in the last."""
    rows: list[list[str]] = []
    of_pairs = [one for one in evaluations if hasattr(one, "translations")]
    if any(one.perplexity for one in evaluations):
        records = [one.perplexity for one in evaluations]
        shown = PERPLEXITY + (PAIR_PERPLEXITY if of_pairs else ())
        rows += [[label, *(_shown(show, r) for r in records), ""] for label, show in shown]
    if of_pairs and all(one.translations for one in of_pairs):
        rows += [[*row, ""] for row in translations.score_rows(of_pairs)]
    elif any(one.bleu for one in evaluations):
        records = [one.bleu for one in evaluations]
        texts = [_shown(lambda r: figure(r["text_score"], 2), r) for r in records]
        shown = [_shown(_bleu, r) for r in records]
        rows.append(["BLEU of continuations", *shown, _common_value(texts)])
    if any(one.diversity for one in evaluations):
        for label, show in DIVERSITY:
            of_models, texts = (
                [_shown(show, one.diversity and one.diversity[whose]) for one in evaluations]
                for whose in ("model", "text")
            )
            rows.append([label, *of_models, _common_value(texts)])
    rows += _pair_rows(evaluations)
    if not any(one.diversity or (one.bleu and one not in of_pairs) for one in evaluations):
        rows = [row[:-1] for row in rows]
    names = [
        "",
        *(one.model for one in evaluations),
        "the targets" if of_pairs else "the text itself",
    ]
    put_table(names[: len(rows[0])], rows)
    _explain(evaluations, verbose)


def _shown(show: Callable[[dict[str, Any]], str], record: dict[str, Any] | None) -> str:
    return MISSING if record is None else show(record)


def _explain(evaluations: list[Evaluation], verbose: bool) -> None:
    """Say why figures are missing and, where that is wanted, how the others were made."""
    for one in evaluations:
        for what, why in one.missing.items():
            say(f"{one.model}: no {what}: {why}")
        for signature in _signatures(one) if verbose else ():
            say(f"{one.model}: {signature}")


def _bleu(record: dict[str, Any]) -> str:
    return interval(record["score"], record["interval"], 2)


def _common_value(values: list[str]) -> str:
    """Return the figure of the text itself, if it is one for all models."""
    return values[0] if len(set(values)) == 1 else MISSING


def _pair_rows(evaluations: list[Evaluation]) -> Iterator[list[str]]:
    for results in zip(*(one.pairs or [] for one in evaluations), strict=True):
        first = results[0]
        label = f"{Path(first['file']).stem}: {first['group'] or 'all'} ({count(first['pairs'])})"
        yield [label, *map(_share_preferred, results), ""]


def _share_preferred(record: dict[str, Any]) -> str:
    """Return how often the better text of a pair is the more probable one, with its interval."""
    more = f", {plural(record['ties'], 'tie')}" if record["ties"] else ""
    if record["oov"]:
        more += f", {count(record['oov'])} unknown"
    low, high = (figure(100 * record[end], 1) for end in ("low", "high"))
    return f"{percentage(record['share'], 1)} [{low}, {high}]{more}"


def _signatures(one: Evaluation) -> list[str]:
    made = getattr(one, "translations", None)
    parts = [one.perplexity, made or one.bleu or one.diversity, *(one.pairs or [])]
    signatures = [part["signature"] for part in parts if part]
    if made:
        signatures += [f"{metric['metric']}|{metric['signature']}" for metric in made["metrics"]]
    elif one.bleu:
        signatures.append(f"BLEU|{one.bleu['bleu_signature']}")
    return list(dict.fromkeys(signatures))
