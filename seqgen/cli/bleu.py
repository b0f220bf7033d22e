"""`seqgen bleu`: score text against references. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import options
from seqgen.cli.output import input_bytes, piped_input, put, put_record, say
from seqgen.cli.tables import put_table
from seqgen.errors import UsageError

if TYPE_CHECKING:
    from seqgen.metrics.bleu import BleuOptions
    from seqgen.tasks.bleu import Texts


def bleu(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[HYP] REF...",
            help="The text to score, and its references: line n against line n. HYP is - or "
            "left out for standard input.",
            show_default=False,
        ),
    ],
    metric: Annotated[str, typer.Option(help="bleu, chrf, chrf++ or ter.")] = "bleu",
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="BLEU's tokenizer: 13a, intl, char, zh, none ...; 13a if none.",
            show_default=False,
        ),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    sentence_level: Annotated[
        bool, typer.Option("--sentence-level", help="A score a line.")
    ] = False,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="A 95 % interval, by resampling the lines.")
    ] = False,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Another system's text: is it better or worse than HYP by more than chance?",
            show_default=False,
        ),
    ] = None,
    paired_test: Annotated[
        str, typer.Option(help="Of --against: bootstrap or randomization.")
    ] = "bootstrap",
    samples: Annotated[
        int, typer.Option(help="Resamples of --confidence and --against.", min=2)
    ] = 1000,
    smooth: Annotated[str, typer.Option(help="BLEU: exp, floor, add-k or none.")] = "exp",
    smooth_value: Annotated[
        float | None, typer.Option(help="BLEU: of floor and add-k.", show_default=False)
    ] = None,
    max_order: Annotated[int, typer.Option(help="BLEU: the longest n-grams.")] = 4,
    effective_order: Annotated[
        bool,
        typer.Option(
            "--effective-order", help="BLEU: only n-grams that the text is long enough for."
        ),
    ] = False,
    case_sensitive: Annotated[
        bool, typer.Option("--case-sensitive", help="TER: see case, which it does not.")
    ] = False,
    normalized: Annotated[
        bool, typer.Option("--normalized", help="TER: normalise punctuation first.")
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Of resampling; sacreBLEU's unless told.", min=0)
    ] = 12345,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Score text against one or several references: BLEU, chrF, chrF++, TER, by sacreBLEU.

    A signature says exactly how a score was made. Lower TER is better, higher all others.
    """
    from seqgen.configs import choice
    from seqgen.metrics.bleu import PAIRED_TESTS, BleuOptions, looks_tokenized

    choice("--paired-test", paired_test, PAIRED_TESTS)
    _check(sentence_level, confidence, against)
    wanted = BleuOptions(
        metric=metric,
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
    if metric == "bleu" and tokenized and wanted.tokenize != "none" and not quiet:
        say(
            f"{tokenized[0]} looks tokenized (spaces before the last mark of its lines): BLEU "
            "tokenizes by itself, so give it plain text, or --tokenize none"
        )
    if sentence_level:
        _put_sentences(texts, wanted, json, quiet)
    elif against:
        _put_paired(texts, wanted, paired_test, samples, seed, json, quiet)
    else:
        _put_corpus(texts, wanted, samples if confidence else 0, seed, json)


def _check(sentence_level: bool, confidence: bool, against: list[str] | None) -> None:
    both = {"--confidence": confidence, "--against": bool(against)}
    wrong = [flag for flag, given in both.items() if given]
    if sentence_level and wrong:
        raise UsageError(f"{wrong[0]} is about a whole text; leave out --sentence-level")


def _read(files: list[str], against: list[str]) -> Texts:
    """Read the files; one alone is the reference of standard input.

    Raises:
        UsageError: there is no reference, or standard input is wanted twice.
    """
    from seqgen.tasks.bleu import read_texts

    if len(files) == 1 and files != ["-"] and piped_input() is not None:
        files = ["-", *files]
    if len(files) < 2:
        raise UsageError("give HYP and at least one REF; HYP may be - or piped in")
    hypothesis, *references = files
    if [hypothesis, *references, *against].count("-") > 1:
        raise UsageError("standard input can be only one of the files")
    systems = {"standard input" if f == "-" else f: _chunks(f) for f in (hypothesis, *against)}
    if len(systems) < 1 + len(against):
        raise UsageError("--against is another file than HYP")
    return read_texts(
        systems, {f"reference {n} ({f})": _chunks(f) for n, f in enumerate(references)}
    )


def _chunks(file: str) -> Iterable[str]:
    """Return the text of one file.

    Raises:
        UsageError: it is a folder or a pattern of several.
    """
    from seqgen.data.text import decode_blocks, decoded, text_files

    if file == "-":
        return decode_blocks(input_bytes(), "standard input")
    path, *others = text_files([Path(file)])
    if others:
        raise UsageError(f"{file} is {1 + len(others)} files: give one, a segment a line")
    return decoded(path)


def _put_corpus(texts: Texts, wanted: BleuOptions, samples: int, seed: int, json: bool) -> None:
    from seqgen.tasks.bleu import bleu as score
    from seqgen.tasks.bleu import record_of

    found = score(texts, wanted, samples, seed)
    if json:
        put_record(record_of(found))
    else:
        put(found.text + "\n")


def _put_sentences(texts: Texts, wanted: BleuOptions, json: bool, quiet: bool) -> None:
    """Write a score a line, to be pasted beside the lines; the signature goes with the progress."""
    from seqgen.tasks.bleu import record_of, sentence_bleu

    for number, found in enumerate(sentence_bleu(texts, wanted)):
        if json:
            put_record(record_of(found, line=number))
            continue
        if number == 0 and not quiet:
            say(f"{found.metric}|{found.signature}")
        put(f"{found.score:.4f}\n")


def _put_paired(
    texts: Texts, wanted: BleuOptions, test: str, samples: int, seed: int, json: bool, quiet: bool
) -> None:
    from seqgen.tasks.bleu import paired_bleu, record_of

    rows = []
    for name, found in paired_bleu(texts, wanted, test, samples, seed):
        if json:
            put_record(record_of(found, file=name))
        interval = "" if found.interval is None else f"{found.mean:.4f} ± {found.interval:.4f}"
        p_value = "" if found.p_value is None else f"{found.p_value:.4f}"
        rows.append((name, f"{found.score:.4f}", interval, p_value))
    if not json:
        names = ("file", found.metric, "mean ± 95 %", f"p against {rows[0][0]}")
        put_table(names, rows)
        if not quiet:
            say(f"{found.metric}|{found.signature}")
