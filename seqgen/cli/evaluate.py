"""`seqgen eval`: everything that can be measured of trained models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqgen.cli import options
from seqgen.cli.help import SCORES, flag, value
from seqgen.cli.output import input_bytes, put_record, say
from seqgen.cli.tables import count, figure, percentage, put_table
from seqgen.errors import UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.tasks.evaluate import Evaluation
    from seqgen.tasks.pairs import Pair


def evaluate(
    file: Annotated[
        str | None,
        typer.Argument(
            help="Text to measure on, or - for standard input; without one, each model's "
            "held-out text.",
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
            "Continue passages of the text; score the continuations by BLEU against the real ones.",
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
        ),
    ] = None,
    documents: options.Documents = None,
    stride: options.Stride = None,
    passages: Annotated[int, value("N", SCORES, "Most passages to continue.")] = 100,
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

    Several models stand side by side. Passages of 64 words are taken evenly from the text: the
    model reads 32 words and writes as many tokens as the other 32 have, at temperature 1. For a
    model of lines, the passages are halves of lines.
    """
    from seqgen.configs import DOCUMENTS, PRECISIONS, choice
    from seqgen.tasks.continuations import Protocol
    from seqgen.tasks.evaluate import Wanted
    from seqgen.tasks.evaluate import evaluate as measure
    from seqgen.tasks.loaded import load
    from seqgen.tasks.perplexity import Scoring

    if documents is not None:
        choice("--documents", documents, DOCUMENTS)
    if file == "-" and "-" in (pairs or []):
        raise UsageError("standard input can be only one of the files")
    if file is not None and pairs and not (perplexity or bleu or diversity):
        raise UsageError("--pairs alone reads no FILE: add --perplexity, --bleu or --diversity")
    everything = not (perplexity or bleu or diversity or pairs)
    wanted = Wanted(
        perplexity=perplexity or everything,
        bleu=bleu or everything,
        diversity=diversity or everything,
        pairs=_pairs(pairs or []),
        scoring=Scoring(documents=documents, stride=stride, batch_size=batch_size),
        protocol=Protocol(passages=passages, seed=seed, batch_size=batch_size),
    )
    text = read_text(file)
    choice("--precision", precision, PRECISIONS)
    found = []
    for name in model or [None]:
        loaded = load(name, device, precision)
        wanted.scoring.check(loaded)
        if not quiet:
            say(f"measuring {loaded.stored.name}")
        found.append(measure(loaded, text, file, wanted))
        if json:
            put_record(found[-1])
    if not json:
        _table(found, verbose and not quiet)


def read_text(file: str | None) -> str | None:
    """Return the text of a file or folder, or of standard input for `-`."""
    from seqgen.data.text import Text, decode_blocks, text_files

    if file is None:
        return None
    if file == "-":
        return "".join(decode_blocks(input_bytes(), "standard input"))
    return "".join(Text(text_files([Path(file)])).chunks())


def _pairs(files: list[str]) -> dict[str, list[Pair]]:
    from seqgen.data.text import decode_blocks, decoded, text_files
    from seqgen.tasks.pairs import read_pairs

    found = {}
    for file in files:
        if file == "-":
            chunks = decode_blocks(input_bytes(), "standard input")
            found["standard input"] = read_pairs(chunks, "standard input")
            continue
        for path in text_files([Path(file)]):
            found[str(path)] = read_pairs(decoded(path), str(path))
    return found


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
    if found[0].perplexity:
        records = [one.perplexity for one in found]
        rows += [[label, *map(show, records), ""] for label, show in PERPLEXITY]
    if found[0].bleu:
        label, shown = "BLEU of continuations", [_bleu(one.bleu) for one in found]
        rows.append([label, *shown, _same([figure(one.bleu["text_score"], 2) for one in found])])
    if found[0].diversity:
        for label, show in DIVERSITY:
            own = [show(one.diversity["model"]) for one in found]
            rows.append([label, *own, _same([show(one.diversity["text"]) for one in found])])
    rows += _pair_rows(found)
    if not (found[0].bleu or found[0].diversity):
        rows = [row[:-1] for row in rows]
    names = ["", *(one.model for one in found), "the text itself"]
    put_table(names[: len(rows[0])], rows)
    if verbose:
        for one in found:
            for signature in _signatures(one):
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
    ties = f", {plural(record['ties'], 'tie')}" if record["ties"] else ""
    return f"{record['share']:.1%} [{100 * record['low']:.1f}, {100 * record['high']:.1f}]{ties}"


def _signatures(one: Evaluation) -> list[str]:
    parts = [one.perplexity, one.bleu or one.diversity, *(one.pairs or [])]
    found = [part["signature"] for part in parts if part]
    if one.bleu:
        found.append(f"BLEU|{one.bleu['bleu_signature']}")
    return list(dict.fromkeys(found))
