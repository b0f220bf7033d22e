"""`seqgen eval`: everything that can be measured of trained models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Input, Inputs
from seqgen.cli.shell.model_options import FixedSeed, Machine, ModelNames, served
from seqgen.cli.shell.output import Output, RecordedOutput, say
from seqgen.cli.shell.pairs import (
    PairFiles,
    as_pairs,
    check_one_kind,
    check_one_pipe,
    check_translates,
    given_pairs,
    held_out_by,
    say_cut,
    score_rows,
    translating,
)
from seqgen.cli.shell.tables import MISSING, count, figure, interval, percentage, put_table
from seqgen.errors import UsageError
from seqgen.settings import Options, Panel, file_argument, same, setting
from seqgen.settings.generation import WeighedTranslation
from seqgen.settings.options import added_options, group
from seqgen.settings.scoring import (
    CacheOptions,
    Scoring,
    TextMeasure,
    TextScoring,
    TranslationScores,
)
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.scoring.evaluate import Evaluation, Measurements
    from seqgen.scoring.minimal_pairs import Pair
    from seqgen.store.loaded import LoadedModel


class MeasuredFile(Options):
    """The file that models are measured on."""

    file: str | None = file_argument(
        "Text to measure on, pairs for translators, or labelled examples for classifiers and "
        "taggers; - is standard input. Without a FILE, each model's held-out part is used."
    )


class MeasuredText(PairFiles):
    """The text, or the pairs, that models are measured on."""

    file: str | None = same(MeasuredFile, "file")


# The measures that plugins add, groups of the class `TextMeasure`.
Added = added_options("eval")


class Measures(Options, panel=Panel.SCORES):
    """What is measured; everything that applies if nothing is asked for."""

    perplexity: bool = setting("Score the text, as `seqgen perplexity` does.", common=True)
    bleu: bool = setting(
        "Continue passages of the text, and score the continuations against the real ones by BLEU. "
        "For translators: translate the sources, and score the translations.",
        common=True,
    )
    diversity: bool = setting(
        "Measure how varied the texts written are: distinct n-grams, self-BLEU, repetition, Zipf "
        "exponent.",
        common=True,
    )
    pairs: tuple[str, ...] = setting(
        "Count how often the first text of a pair is more probable: lines "
        "better<TAB>worse[<TAB>group]; - is standard input.",
        reads="file",
        common=True,
    )
    passages: int = setting("Largest number of passages to continue.", 100, low=1)
    added: Added = group(Added)

    @property
    def added_measures(self) -> list[TextMeasure]:
        """Those that plugins add, asked for or not."""
        return self.added.groups

    @property
    def added_flag(self) -> str | None:
        """The first flag of such a measure that was given."""
        return next(iter(self.added.given), None)

    @property
    def writes(self) -> bool:
        """Whether it is asked for something that the model writes."""
        return self.bleu or self.diversity or self.added_flag is not None


@takes_options
def evaluate(
    context: typer.Context,
    files: MeasuredText,
    models: ModelNames,
    looked_up: CacheOptions,
    asked: Measures,
    scores: TranslationScores,
    translation: WeighedTranslation,
    scoring: TextScoring,
    seed: FixedSeed,
    machine: Machine,
    out: RecordedOutput,
) -> None:
    """Measure everything that applies to a model, or only what is asked for.

    Several models are shown side by side. --bleu, --diversity and
    other measures of what a model writes use passages of 64 words, taken
    evenly from the text: the model reads the first 32 words and writes as many tokens as the
    other 32 have, at temperature 1. A model of lines continues the first half of a line. A
    translator translates the sources by beam search. Of a classifier or a tagger, accuracy, F1
    and what it confuses are shown.
    """
    if served(context, models.names):
        return
    from seqgen.scoring.evaluate import evaluate as measure
    from seqgen.store.loading import Work, load

    asked = replace(asked, bleu=asked.bleu or bool(scores.given))
    check_one_pipe(files.file, files.source, files.target, *asked.pairs)
    if files.any and asked.pairs and not (asked.perplexity or asked.writes):
        raise UsageError("--pairs alone reads no FILE: add --perplexity, --bleu or --diversity")
    inputs = Inputs(out.quiet)
    to_measure = replace(
        _measurements(asked, inputs, scoring, seed),
        translating=translating(translation, scores, scoring.batch_size),
    )
    read = [file for file in (files.file, files.source, files.target, *asked.pairs) if file]
    work = Work.of_files(read, rows=to_measure.protocol.batch_size)
    how = machine.device, machine.precision, looked_up.config, work
    loaded = [load(name, *how) for name in models.names]
    out.uses(loaded)
    check_one_kind(loaded)
    if loaded[0].conditioning.is_source and (asked.pairs or asked.added_flag):
        loaded[0].conditioning.require_nothing("--pairs" if asked.pairs else asked.added_flag)
    check_translates(loaded[0], files.of_pairs or next(iter(scores.given), None))
    read = _reader(loaded, inputs, files, to_measure)
    evaluations = []
    for one in loaded:
        _announce(one, to_measure, out)
        evaluations.append(measure(one, *read(one), to_measure))
        out.record(evaluations[-1].record())
    if not out.json:
        _table(evaluations, asked.added_measures, out)
    for one in evaluations if loaded[0].conditioning.is_source else ():
        if made := one.translations:
            say_cut(one.model, made["cut"], made["pairs"], made["max_tokens"], out)


def _measurements(
    asked: Measures, inputs: Inputs, scoring: TextScoring, seed: FixedSeed
) -> Measurements:
    """Make the list of measurements; everything that applies if nothing is asked for."""
    from seqgen.generation.passages import Protocol
    from seqgen.scoring.evaluate import Measurements

    everything = not (asked.perplexity or asked.writes or asked.pairs)
    return Measurements(
        perplexity=asked.perplexity or everything,
        bleu=asked.bleu or everything,
        diversity=asked.diversity or everything,
        added=asked.added_measures,
        pairs=_pairs(inputs.open(asked.pairs)),
        scoring=Scoring(**asdict(scoring)),
        protocol=Protocol(passages=asked.passages, seed=seed.seed, batch_size=scoring.batch_size),
        lenient=everything,
    )


Read = Callable[["LoadedModel"], tuple[Any, str | None]]


def _reader(
    models: Sequence[LoadedModel], inputs: Inputs, files: MeasuredText, to_measure: Measurements
) -> Read:
    """Make a function that reads the text or pairs for each model, and returns their name too.

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
    if models[0].conditioning.in_pairs:
        given = given_pairs(inputs, files) or held_out_by(models, quiet=True)
        # A model that does not read such pairs, or a line that is none, is refused before the work.
        pairs, *_ = [as_pairs(one, given, "keep") for one in models]
        for _ in pairs:
            pass
        return lambda loaded: (as_pairs(loaded, given, loaded.data.newlines), given.name)
    if files.file is not None:
        name, documents = files.file, models[0].data.documents
        text = inputs.read_text_or_tokens(name, documents)
    else:
        text, name = held_out_by(models, quiet=True).text_or_tokens(), "validation"
    return lambda loaded: (text, name)


def _announce(loaded: LoadedModel, to_measure: Measurements, out: Output) -> None:
    """Refuse a way to score that does not suit a model; say what is being measured."""
    from seqgen.scoring.perplexity import for_model, warning_of

    for_model(loaded, to_measure.scoring)
    out.notice(f"measuring {loaded.stored.name}")
    if to_measure.perplexity and (warning := warning_of(loaded, to_measure.scoring)):
        out.notice(warning)


def _pairs(sources: list[Input]) -> dict[str, list[Pair]]:
    from seqgen.scoring.minimal_pairs import read_pairs

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


def _table(evaluations: list[Evaluation], added: Sequence[TextMeasure], out: Output) -> None:
    """Write a row a figure and a column a model; what the text itself has stands in the last."""
    rows: list[list[str]] = []
    of_pairs = [one for one in evaluations if hasattr(one, "translations")]
    if any(one.perplexity for one in evaluations):
        records = [one.perplexity for one in evaluations]
        rows += [_row(*row, records) for row in PERPLEXITY + PAIR_PERPLEXITY * bool(of_pairs)]
    if of_pairs and all(one.translations for one in of_pairs):
        rows += [[*row, ""] for row in score_rows(of_pairs)]
    elif any(one.bleu for one in evaluations):
        records = [one.bleu for one in evaluations]
        text = _row("", lambda r: figure(r["text_score"], 2), (), records)[-1]
        rows.append([*_row("BLEU of continuations", _bleu, records)[:-1], text])
    of_texts = [([one.diversity for one in evaluations], DIVERSITY)]
    of_texts += [([one.added[each.key] for one in evaluations], each.rows) for each in added]
    for made, figures in of_texts:
        of_models, texts = ([(one or {}).get(whose) for one in made] for whose in ("model", "text"))
        rows += [_row(*row, of_models, texts) for row in figures if any(made)]
    rows += _pair_rows(evaluations)
    of_text = any(any(made) for made, _ in of_texts)
    if not of_text and not any(one.bleu and one not in of_pairs for one in evaluations):
        rows = [row[:-1] for row in rows]
    names = ["", *(one.model for one in evaluations)]
    names.append("the targets" if of_pairs else "the text itself")
    put_table(names[: len(rows[0])], rows)
    _explain(evaluations, out)


def _row(
    label: str,
    show: Callable[[dict[str, Any]], str],
    of_models: Iterable[dict[str, Any] | None],
    texts: Iterable[dict[str, Any] | None] = (),
) -> list[str]:
    """Return a figure of each model, and that of the text itself if it is one for all of them."""
    models, own = ([MISSING if r is None else show(r) for r in each] for each in (of_models, texts))
    of_text = own[0] if len(set(own)) == 1 else MISSING if own else ""
    return [label, *models, of_text]


def _explain(evaluations: list[Evaluation], out: Output) -> None:
    """Say why figures are missing and, where that is wanted, how the others were made."""
    for one in evaluations:
        for what, why in one.missing.items():
            say(f"{one.model}: no {what}: {why}")
        for signature in _signatures(one) if out.explains else ():
            say(f"{one.model}: {signature}")


def _bleu(record: dict[str, Any]) -> str:
    return interval(record["score"], record["interval"], 2)


def _pair_rows(evaluations: list[Evaluation]) -> Iterator[list[str]]:
    for results in zip(*(one.pairs or [] for one in evaluations), strict=True):
        first = results[0]
        label = f"{Path(first['file']).stem}: {first['group'] or 'all'} ({count(first['pairs'])})"
        yield [label, *map(_share_preferred, results), ""]


def _share_preferred(record: dict[str, Any]) -> str:
    """Format the share of pairs whose better text is more probable, with its interval."""
    more = f", {plural(record['ties'], 'tie')}" if record["ties"] else ""
    if record["oov"]:
        more += f", {count(record['oov'])} unknown"
    low, high = (figure(100 * record[end], 1) for end in ("low", "high"))
    return f"{percentage(record['share'], 1)} [{low}, {high}]{more}"


def _signatures(one: Evaluation) -> list[str]:
    made = getattr(one, "translations", None)
    written = made or one.bleu or one.diversity or next(filter(None, one.added.values()), None)
    parts = [one.perplexity, written, *(one.pairs or [])]
    signatures = [part["signature"] for part in parts if part]
    if made:
        signatures += [f"{metric['metric']}|{metric['signature']}" for metric in made["metrics"]]
    elif one.bleu:
        signatures.append(f"BLEU|{one.bleu['bleu_signature']}")
    return list(dict.fromkeys(signatures))
