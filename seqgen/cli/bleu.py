"""`seqgen bleu`: score text against references. Loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import options
from seqgen.cli.completion import one_of
from seqgen.cli.help import flag, value
from seqgen.cli.inputs import Inputs, file_name, piped_input
from seqgen.cli.output import put, put_record, say
from seqgen.cli.tables import figure, interval, put_table
from seqgen.configs.panels import OUTPUT, SCORES, TESTS
from seqgen.errors import UsageError

if TYPE_CHECKING:
    from seqgen.commands.scoring.bleu import Texts
    from seqgen.metrics.bleu import BleuOptions


def bleu(
    files: Annotated[
        list[str],
        typer.Argument(
            parser=file_name,
            metavar="[HYP] REF...",
            help="The text to score and its references, compared line by line. If HYP is - or left "
            "out, it is read from standard input.",
            show_default=False,
        ),
    ],
    metric: Annotated[
        list[str] | None,
        value(
            "KIND",
            SCORES,
            "Metric: bleu, chrf, chrf++ or ter. Can be repeated.",
            default="bleu",
            complete=one_of("bleu", "chrf", "chrf++", "ter"),
        ),
    ] = None,
    lowercase: Annotated[bool, flag("--lowercase", SCORES, "Ignore case.")] = False,
    tokenize: Annotated[
        str | None,
        value(
            "KIND",
            SCORES,
            "BLEU: tokenizer, such as 13a, intl, char, zh or none.",
            default="13a",
        ),
    ] = None,
    smooth: Annotated[
        str,
        value(
            "KIND",
            SCORES,
            "BLEU: smoothing of n-grams without a match: exp, floor, add-k or none.",
            complete=one_of("exp", "floor", "add-k", "none"),
        ),
    ] = "exp",
    smooth_value: Annotated[
        float | None,
        value("X", SCORES, "BLEU: value of the smoothing floor or add-k.", default=False),
    ] = None,
    max_order: Annotated[int, value("N", SCORES, "BLEU: length of the longest n-grams.")] = 4,
    effective_order: Annotated[
        bool,
        flag(
            "--effective-order", SCORES, "BLEU: use only n-grams that the text is long enough for."
        ),
    ] = False,
    case_sensitive: Annotated[
        bool, flag("--case-sensitive", SCORES, "TER: treat upper and lower case as different.")
    ] = False,
    normalized: Annotated[
        bool, flag("--normalized", SCORES, "TER: normalise punctuation first.")
    ] = False,
    sentence_level: Annotated[
        bool,
        flag(
            "--sentence-level",
            OUTPUT,
            "Print a score for each line; several metrics are columns.",
        ),
    ] = False,
    confidence: Annotated[
        bool, flag("--confidence", TESTS, "Add a 95 % interval, from resampling the lines.")
    ] = False,
    against: Annotated[
        list[str] | None,
        value(
            "FILE",
            TESTS,
            "Output of another system: test whether its score differs significantly from HYP's.",
            default=False,
            parser=file_name,
        ),
    ] = None,
    paired_test: Annotated[
        str,
        value(
            "KIND",
            TESTS,
            "Test of --against: bootstrap or randomization.",
            complete=one_of("bootstrap", "randomization"),
        ),
    ] = "bootstrap",
    samples: Annotated[
        int, value("N", TESTS, "Number of resamples for --confidence and --against.", min=2)
    ] = 1000,
    seed: Annotated[
        int,
        value("N", TESTS, "Random seed of the resampling; the default is sacreBLEU's.", min=0),
    ] = 12345,
    threads: options.Threads = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Score text against one or several references: BLEU, chrF, chrF++ or TER, by sacreBLEU.

    A signature records exactly how a score was made; --verbose and --json show it. Lower TER is
    better; for the other metrics, higher is better.
    """
    from seqgen.configs import choice
    from seqgen.metrics.bleu import PAIRED_TESTS, looks_tokenized, options_by_metric

    choice("--paired-test", paired_test, PAIRED_TESTS)
    _check(sentence_level, confidence, against)
    metrics = options_by_metric(
        metric or ["bleu"],
        tokenize=tokenize,
        lowercase=lowercase,
        smooth=smooth,
        smooth_value=smooth_value,
        max_order=max_order,
        effective_order=effective_order,
        case_sensitive=case_sensitive,
        normalized=normalized,
    )
    texts = _read(files, against or [])
    tokenized = [name for name, lines in texts.systems.items() if looks_tokenized(lines)]
    plain = any(one.metric == "bleu" and one.tokenize != "none" for one in metrics)
    if plain and tokenized and not quiet:
        say(
            f"{tokenized[0]} looks tokenized (spaces before the last mark of its lines): BLEU "
            "tokenizes by itself, so give it plain text, or --tokenize none"
        )
    verbose = verbose and not quiet
    if sentence_level:
        _put_sentences(texts, metrics, json, verbose)
    elif against:
        for one in metrics:
            _put_paired(texts, one, paired_test, samples, seed, json, verbose)
    else:
        for one in metrics:
            _put_corpus(texts, one, samples if confidence else 0, seed, json, verbose)


def _check(sentence_level: bool, confidence: bool, against: list[str] | None) -> None:
    both = {"--confidence": confidence, "--against": bool(against)}
    wrong = [flag for flag, given in both.items() if given]
    if sentence_level and wrong:
        raise UsageError(f"{wrong[0]} is about a whole text; leave out --sentence-level")


def _read(files: list[str], against: list[str]) -> Texts:
    """Read the files; one alone is the reference of standard input.

    Raises:
        UsageError: there is no reference, standard input is wanted twice, or a file is several.
    """
    from seqgen.commands.scoring.bleu import read_texts

    if len(files) == 1 and files != ["-"] and piped_input() is not None:
        files = ["-", *files]
    if len(files) < 2:
        raise UsageError("give HYP and at least one REF; HYP may be - or piped in")
    if [*files, *against].count("-") > 1:
        raise UsageError("standard input can be only one of the files")
    inputs = Inputs()
    hypothesis, *references = map(inputs.open_one, files)
    systems = [hypothesis, *map(inputs.open_one, against)]
    texts = {source.title: source.chunks() for source in systems}
    if len(texts) < len(systems):
        raise UsageError("--against is another file than HYP")
    return read_texts(
        texts, {f"reference {n} ({s.name})": s.chunks() for n, s in enumerate(references)}
    )


def _put_corpus(
    texts: Texts, options: BleuOptions, samples: int, seed: int, json: bool, verbose: bool
) -> None:
    from seqgen.commands.scoring import bleu as scoring

    score = scoring.bleu(texts, options, samples, seed)
    if json:
        put_record(scoring.record_of(score))
    else:
        put((score.text if verbose else score.short_text) + "\n")


def _put_sentences(texts: Texts, metrics: Sequence[BleuOptions], json: bool, verbose: bool) -> None:
    """Write a line's scores a line, to be pasted beside the lines; signatures are progress."""
    from seqgen.commands.scoring.bleu import record_of, sentence_bleu

    scores = zip(*(sentence_bleu(texts, one) for one in metrics), strict=True)
    for number, of_line in enumerate(scores):
        if json:
            for one in of_line:
                put_record(record_of(one, line=number))
            continue
        if number == 0 and verbose:
            for one in of_line:
                say(f"{one.metric}|{one.signature}")
        put("\t".join(figure(one.score) for one in of_line) + "\n")


def _put_paired(
    texts: Texts,
    options: BleuOptions,
    test: str,
    samples: int,
    seed: int,
    json: bool,
    verbose: bool,
) -> None:
    from seqgen.commands.scoring.bleu import paired_bleu, record_of

    rows = []
    for name, score in paired_bleu(texts, options, test, samples, seed):
        if json:
            put_record(record_of(score, file=name))
        mean = "" if score.interval is None else interval(score.mean, score.interval)
        p_value = "" if score.p_value is None else figure(score.p_value)
        rows.append((name, figure(score.score), mean, p_value))
    if not json:
        names = ("file", score.metric, "mean ± 95 %", f"p against {Path(rows[0][0]).name}")
        put_table(names, rows)
        if verbose:
            say(f"{score.metric}|{score.signature}")
