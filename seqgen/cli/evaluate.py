"""`seqgen eval`: everything that can be measured of trained models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqgen.cli import options
from seqgen.cli.help import SCORES, flag, value
from seqgen.cli.inputs import Inputs, Source, file_name
from seqgen.cli.output import put_record, say
from seqgen.cli.pairs import held_out_by
from seqgen.cli.tables import count, figure, percentage, put_table
from seqgen.errors import UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.tasks.loaded import LoadedModel
    from seqgen.tasks.scoring.evaluate import Evaluation, Wanted
    from seqgen.tasks.scoring.pairs import Pair


def evaluate(
    file: Annotated[
        str | None,
        typer.Argument(
            help="Text to measure on, or - for standard input. Without a FILE, each model's "
            "held-out text is used.",
            parser=file_name,
            metavar="[FILE]",
            show_default=False,
        ),
    ] = None,
    model: options.Models = None,
    perplexity: Annotated[
        bool, flag("--perplexity", SCORES, "Score the text, as `seqgen perplexity` does.")
    ] = False,
    bleu: Annotated[
        bool,
        flag(
            "--bleu",
            SCORES,
            "Continue passages of the text, and score the continuations against the real ones by "
            "BLEU.",
        ),
    ] = False,
    diversity: Annotated[
        bool,
        flag(
            "--diversity",
            SCORES,
            "Measure how varied the continuations are: distinct n-grams, self-BLEU, repetition, "
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
    documents: options.Documents = None,
    stride: options.Stride = None,
    passages: Annotated[int, value("N", SCORES, "Largest number of passages to continue.")] = 100,
    seed: options.FixedSeed = 0,
    batch_size: options.BatchSize = 32,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure everything that applies to a model, or only what is asked for.

    Several models are shown side by side. --bleu and --diversity use passages of 64 words, taken
    evenly from the text: the model reads the first 32 words and writes as many tokens as the
    other 32 have, at temperature 1. A model of lines continues the first half of a line.
    """
    from seqgen.configs import DOCUMENTS, PRECISIONS, choice
    from seqgen.tasks.loaded import load
    from seqgen.tasks.scoring.evaluate import Wanted
    from seqgen.tasks.scoring.evaluate import evaluate as measure
    from seqgen.tasks.scoring.perplexity import Scoring
    from seqgen.tasks.writing.continuations import Protocol

    if documents is not None:
        choice("--documents", documents, DOCUMENTS)
    if file == "-" and "-" in (pairs or []):
        raise UsageError("standard input can be only one of the files")
    if file is not None and pairs and not (perplexity or bleu or diversity):
        raise UsageError("--pairs alone reads no FILE: add --perplexity, --bleu or --diversity")
    everything = not (perplexity or bleu or diversity or pairs)
    inputs = Inputs(quiet)
    wanted = Wanted(
        perplexity=perplexity or everything,
        bleu=bleu or everything,
        diversity=diversity or everything,
        pairs=_pairs(inputs.open(pairs or ())),
        scoring=Scoring(documents=documents, stride=stride, batch_size=batch_size),
        protocol=Protocol(passages=passages, seed=seed, batch_size=batch_size),
        lenient=everything,
    )
    text = None if file is None else inputs.read_text_or_tokens(file)
    choice("--precision", precision, PRECISIONS)
    models = [load(name, device, precision) for name in model or [None]]
    for loaded in models:
        loaded.require_text("eval")
    name = file
    if text is None and wanted.needs_text and len(models) > 1:
        text, name = held_out_by(models, quiet=True).text_or_tokens(), "validation"
    found = []
    for loaded in models:
        wanted.scoring.check(loaded)
        if not quiet:
            _announce(loaded, wanted)
        found.append(measure(loaded, text, name, wanted))
        if json:
            put_record(found[-1])
    if not json:
        _table(found, verbose and not quiet)


def _announce(loaded: LoadedModel, wanted: Wanted) -> None:
    say(f"measuring {loaded.stored.name}")
    if wanted.perplexity and (warning := wanted.scoring.warning(loaded)):
        say(warning)


def _pairs(sources: list[Source]) -> dict[str, list[Pair]]:
    from seqgen.tasks.scoring.pairs import read_pairs

    return {source.title: read_pairs(source.chunks(), source.title) for source in sources}


Row = tuple[str, Callable[[dict[str, Any]], str]]
PERPLEXITY: tuple[Row, ...] = (
    ("perplexity", lambda r: figure(r["perplexity"])),
    ("perplexity per word", lambda r: figure(r["perplexity_per_word"])),
    ("bits/char", lambda r: figure(r["bits_per_char"])),
    ("bits/byte", lambda r: figure(r["bits_per_byte"])),
    ("accuracy", lambda r: percentage(r["accuracy"])),
    ("unknown tokens", lambda r: count(r["oov"])),
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


def _table(found: list[Evaluation], verbose: bool) -> None:
    """Write a row a figure and a column a model; what the text itself has stands in the last."""
    rows: list[list[str]] = []
    if any(one.perplexity for one in found):
        records = [one.perplexity for one in found]
        rows += [[label, *(_shown(show, r) for r in records), ""] for label, show in PERPLEXITY]
    if any(one.bleu for one in found):
        records = [one.bleu for one in found]
        texts = [_shown(lambda r: figure(r["text_score"], 2), r) for r in records]
        shown = [_shown(_bleu, r) for r in records]
        rows.append(["BLEU of continuations", *shown, _same(texts)])
    if any(one.diversity for one in found):
        for label, show in DIVERSITY:
            own, texts = (
                [_shown(show, one.diversity and one.diversity[whose]) for one in found]
                for whose in ("model", "text")
            )
            rows.append([label, *own, _same(texts)])
    rows += _pair_rows(found)
    if not any(one.bleu or one.diversity for one in found):
        rows = [row[:-1] for row in rows]
    names = ["", *(one.model for one in found), "the text itself"]
    put_table(names[: len(rows[0])], rows)
    _explain(found, verbose)


def _shown(show: Callable[[dict[str, Any]], str], record: dict[str, Any] | None) -> str:
    return "-" if record is None else show(record)


def _explain(found: list[Evaluation], verbose: bool) -> None:
    """Say why figures are missing and, where that is wanted, how the others were made."""
    for one in found:
        for what, why in one.missing.items():
            say(f"{one.model}: no {what}: {why}")
        for signature in _signatures(one) if verbose else ():
            say(f"{one.model}: {signature}")


def _bleu(record: dict[str, Any]) -> str:
    return f"{record['score']:.2f} ± {record['interval']:.2f}"


def _same(values: list[str]) -> str:
    """Return what the text has, if it is one text for all."""
    return values[0] if len(set(values)) == 1 else "-"


def _pair_rows(found: list[Evaluation]) -> Iterator[list[str]]:
    for same in zip(*(one.pairs or [] for one in found), strict=True):
        first = same[0]
        label = f"{Path(first['file']).stem}: {first['group'] or 'all'} ({first['pairs']:,})"
        yield [label, *map(_share, same), ""]


def _share(record: dict[str, Any]) -> str:
    more = f", {plural(record['ties'], 'tie')}" if record["ties"] else ""
    if record["oov"]:
        more += f", {record['oov']:,} unknown"
    return f"{record['share']:.1%} [{100 * record['low']:.1f}, {100 * record['high']:.1f}]{more}"


def _signatures(one: Evaluation) -> list[str]:
    parts = [one.perplexity, one.bleu or one.diversity, *(one.pairs or [])]
    found = [part["signature"] for part in parts if part]
    if one.bleu:
        found.append(f"BLEU|{one.bleu['bleu_signature']}")
    return list(dict.fromkeys(found))
