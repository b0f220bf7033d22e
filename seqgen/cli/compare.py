"""`seqgen compare`: several models on one text, in one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import typer

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Inputs
from seqgen.cli.shell.model_options import FixedSeed, Machine, run_task_variant
from seqgen.cli.shell.output import Output, RecordedOutput, say
from seqgen.cli.shell.pairs import (
    PairFiles,
    as_pairs,
    as_text,
    check_one_kind,
    given_pairs,
    held_out_input,
    report_truncated,
    translating,
)
from seqgen.cli.shell.tables import (
    MISSING,
    declared_columns,
    figure,
    interval,
    percentage,
    put_columns,
)
from seqgen.settings import NumberFormat, OptionRule, Options, Panel, argument, require, setting
from seqgen.settings.generation import Translation
from seqgen.settings.scoring import CacheOptions, Scoring, TextScoring, TranslationScores
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.scoring.compare import Comparison
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.pairs import Pairs


class ComparedModels(Options, panel=Panel.MODEL):
    """Arguments that name the models to compare."""

    models: tuple[str, ...] = argument(
        "Trained models: names, paths or mixtures A+B.", "MODEL", completes="models"
    )
    all_: bool = setting("Compare all trained language models.", names=("--all",), common=True)
    precisions: tuple[NumberFormat, ...] = setting(
        "Compare each model in several number formats, such as float32,int8,int4.",
        metavar="KIND,KIND,...",
        listed=True,
        panel=Panel.MACHINE,
        conflicts=OptionRule(("--precision",), "give {other} or {flag}, not both"),
    )

    def load(
        self, machine: Machine, looked_up: CacheOptions, files: Sequence[str]
    ) -> list[LoadedModel]:
        """Load the models to compare, each in every requested number format.

        Raises:
            UsageError: there is none, or a number format is unknown or given twice.
            SeqgenError: a model cannot be loaded.
        """
        from seqgen.scoring.compare import all_models
        from seqgen.store.loading import Work

        require(bool(self.models) != self.all_, "give the models to compare, or --all")
        names = list(all_models()) if self.all_ else self.models
        require(bool(names), "there is no trained language model yet; run seqgen train FILE first")
        kinds, cache = self.precisions, looked_up.config
        if not kinds:
            return [machine.load(name, cache, Work.of_files(files)) for name in names]
        require(len(set(kinds)) == len(kinds), "--precisions has a number format twice")
        machines = [replace(machine, precision=kind) for kind in kinds]
        loaded = [(each, each.load(name, cache)) for name in names for each in machines]
        return [replace(one, title=f"{one.name} in {each.precision}") for each, one in loaded]


class ComparedText(PairFiles, panel=Panel.TEXT):
    """Options for the text, or the pairs, that models are compared on."""

    data: str | None = setting(
        "Text to compare on, or pairs for models that read those; - is standard input.",
        reads="file",
        without="the text that all of them held out",
        common=True,
    )

    @property
    def file(self) -> str | None:
        """File of the text, or of pairs in one file; None for held-out data."""
        return self.data


class ComparisonTests(Options, panel=Panel.SCORES):
    """Options for BLEU and bootstrap significance tests in a comparison."""

    bleu: bool = setting(
        "For translators: also translate the sources, and compare by BLEU.",
        True,
        names=("--bleu/--no-bleu",),
    )
    resamples: int = setting(
        "Number of bootstrap resamples for intervals and p-values.", 2000, low=2
    )


@takes_options
def compare(
    context: typer.Context,
    compared: ComparedModels,
    looked_up: CacheOptions,
    files: ComparedText,
    tests: ComparisonTests,
    translation: Translation,
    scoring: TextScoring,
    seed: FixedSeed,
    machine: Machine,
    out: RecordedOutput,
) -> None:
    """Compare models on one text in bits per byte, even if their tokenizers differ.

    An unknown token costs 8 bits for each of its bytes. Intervals are 95 %, from resampling
    about 200 blocks of lines. The p-value tests the difference from the best model on the same
    blocks. Translators are compared in bits per byte of the targets, given their sources, and by
    the BLEU of their translations; classifiers and taggers by accuracy, with McNemar's test and the
    paired bootstrap.
    """
    if compared.models and run_task_variant(context, compared.models):
        return
    from seqgen.scoring.compare import compare as compared_by
    from seqgen.scoring.perplexity import last_held_out

    given = files.data, files.source, files.target
    loaded = compared.load(machine, looked_up, [file for file in given if file is not None])
    out.uses(loaded)
    check_one_kind(loaded)
    scoring = Scoring(**asdict(scoring))
    text, what = _text(loaded, Inputs(out.quiet), files)
    _warn(loaded, text if what else None, scoring, out)
    by_bleu = None
    if loaded[0].conditioning.is_source and tests.bleu:
        by_bleu = translating(translation, TranslationScores(metric=("bleu",)), scoring.batch_size)
    part = None
    if files.file is None and any(one.stored.scored_from for one in loaded):
        part = last_held_out(len(text))
    records = compared_by(
        loaded,
        text,
        scoring=scoring,
        translating=by_bleu,
        seed=seed.seed,
        resamples=tests.resamples,
        part=part,
    )
    if not out.records(records):
        put_columns(_columns(records), sorted(records, key=lambda one: -one.bits_per_byte))
    for one in records if by_bleu else ():
        report_truncated(one.model, one.cut, one.bleu["pairs"], one.max_tokens, out)
    if not out.json:
        _explain(records, what, out)


def _text(
    models: list[LoadedModel], inputs: Inputs, files: ComparedText
) -> tuple[str | Pairs, str | None]:
    """Open the text or pairs to compare on, and return the file's name with it.

    Raises:
        UsageError: files are given that models of this kind do not read.
        SeqgenError: they cannot be read; or nothing is given and models hold out other texts.
    """
    from seqgen.scoring import compare as comparing

    models[0].conditioning.require_sources(files.of_pairs)
    if models[0].conditioning.in_pairs:
        given = given_pairs(inputs, files)
        newlines = "lf" if all(one.data.newlines == "lf" for one in models) else "keep"
        held_out = given or held_out_input(models, quiet=True)
        pairs, *_ = [as_pairs(one, held_out, newlines) for one in models]
        return pairs, given and given.name
    if files.file is None:
        return comparing.common_text(models), None
    for source in inputs.open([files.file]):
        as_text(models[0], source)  # refuses examples
    return inputs.read_text(files.file, models[0].data.documents), files.file


def _warn(
    models: list[LoadedModel], given: str | Pairs | None, scoring: Scoring, out: Output
) -> None:
    """Warn about inexact scoring, mixed newlines, and models trained on the given text."""
    from seqgen.scoring.compare import newlines_warning, trained_on
    from seqgen.scoring.perplexity import warning_of

    for warning in filter(None, (warning_of(loaded, scoring) for loaded in models)):
        out.announce(warning)
    if given is None:
        return
    if warning := newlines_warning(models, given):
        out.announce(warning)
    seen = dict.fromkeys(one.stored.name for one in models if trained_on(one, given))
    if seen:
        out.announce(f"{' and '.join(seen)} learnt from this very text: no fair comparison")


# What is known of the translations of models of pairs.
BLEU = {
    "BLEU": lambda r: interval(r.bleu["score"], r.bleu["interval"], 2),
    "p of BLEU": lambda r: "best" if r.bleu["best"] else figure(r.bleu["p_value"]),
    "exact match": lambda r: percentage(r.bleu["exact_match"]),
}


def _columns(records: list[Comparison]) -> dict[str, Callable[[Any], str]]:
    """Select the table columns that apply to these comparison records."""
    columns = declared_columns(records, ("model", "parameters", "perplexity"))
    columns["95 %"] = lambda r: MISSING if r.low is None else f"{figure(r.low)} to {figure(r.high)}"
    columns["p"] = lambda r: "best" if r.model == r.best else figure(r.p_value)
    return columns | (BLEU if getattr(records[0], "bleu", None) else {})


def _explain(records: list[Comparison], data: str | None, out: Output) -> None:
    """Describe the compared text; with --verbose, also how each figure was computed."""
    what = "the shared held-out part" if data is None else data
    sizes = plural(records[0].characters, "character"), plural(records[0].bytes, "byte")
    out.notice(f"text: {what}, {', '.join(sizes)}")
    for one in records if out.explains else ():
        say(f"{one.model}: {one.signature}")
        if bleu := getattr(one, "bleu", None):
            say(f"{one.model}: BLEU|{bleu['signature']}")
