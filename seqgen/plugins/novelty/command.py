"""`seqgen novelty`: find what texts copied from the training text."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Inputs, given_or_piped
from seqgen.cli.shell.model_options import Device, ModelName
from seqgen.cli.shell.output import Output, RecordedOutput
from seqgen.cli.shell.tables import MISSING, declared_columns, percentage, put_columns, put_table
from seqgen.errors import UsageError
from seqgen.limits import read_whole
from seqgen.settings import Documents, OptionRule, Options, Panel, file_argument, setting

if TYPE_CHECKING:
    from seqgen.plugins.novelty.novelty import Copies, KnownText, Shares


class SearchedTexts(Options, panel=Panel.TEXT):
    """Texts to check, and the text they may have copied from."""

    file: str | None = file_argument(
        "The text to look up; - is standard input. Without one, the model writes 16 texts."
    )
    against: tuple[str, ...] = setting(
        "Look it up in this file instead of the training text of a model. Can be repeated.",
        reads="file",
        conflicts=OptionRule(("--model",), "{flag} takes the place of -m: give one of them"),
    )
    documents: Documents = setting(
        "Look FILE up as one text (stream), or each of its lines as a text of its own (line).",
        "stream",
    )


@takes_options
def novelty(looked: SearchedTexts, model: ModelName, machine: Device, out: RecordedOutput) -> None:
    """Find what texts have copied from the text that a model was trained on, and where.

    For each text: its longest part that occurs in the training text, and the file and line where
    it first occurs. Then the share of its n-grams that occur there, compared with held-out text of
    the same length. An n-gram of tokens occurs if its characters do. A
    suffix array of the training text is made once, and kept in the cache.
    """
    from seqgen.plugins.novelty.novelty import like_lengths
    from seqgen.plugins.novelty.novelty import novelty as compare

    inputs = Inputs(out.quiet)
    known, texts, held_out = (
        _against(looked, inputs) if looked.against else _of(looked, model, machine, inputs, out)
    )
    copies = compare(known, texts)
    others = like_lengths(held_out, texts)
    of_others = compare(known, others).share if others else None
    total = {
        "texts": len(texts),
        "characters": sum(map(len, texts)),
        "longest": max((record.longest for record in copies.texts), default=0),
        "share": copies.share,
        "held_out": of_others,
    }
    if not out.records([*copies.texts, {"total": total}]):
        _table(copies, of_others)


def _texts(looked: SearchedTexts, inputs: Inputs, name: str) -> list[str]:
    text = inputs.read_text(name, looked.documents)
    if looked.documents == "stream":
        return [text]
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _against(looked: SearchedTexts, inputs: Inputs) -> tuple[KnownText, list[str], str]:
    """Index the files of --against, and read the texts; the held-out text is empty."""
    from seqgen.plugins.novelty.novelty import known_files

    (name,) = given_or_piped([looked.file], "seqgen novelty FILE")
    if name == "-" and "-" in looked.against:
        raise UsageError("standard input can be only one of the files")
    files = [(source.title, source.chunks) for source in inputs.open(looked.against)]
    return known_files(files), _texts(looked, inputs, name), ""


def _of(
    looked: SearchedTexts, model: ModelName, machine: Device, inputs: Inputs, out: Output
) -> tuple[KnownText, list[str], str]:
    """Index a model's training text; read or sample the texts; read the held-out text."""
    from seqgen.plugins.novelty.novelty import known_to, sample_fixed_texts
    from seqgen.store.loading import load

    texts = None if looked.file is None else _texts(looked, inputs, looked.file)
    loaded = load(model.model, machine.device)
    out.uses([loaded])
    known = known_to(loaded)
    path = loaded.stored.validation_text
    held_out = ""
    if path is not None:
        held_out = read_whole(
            chain.from_iterable(s.chunks() for s in inputs.open([str(path)])), "it"
        )
    return known, sample_fixed_texts(loaded) if texts is None else texts, held_out


def _table(copies: Copies, of_others: Shares | None) -> None:
    """Print a row per text, then a row per kind of n-gram."""
    put_columns(declared_columns(copies.texts), copies.texts)
    rows = [
        [f"{n} {unit}", *(_share(given, unit, n) for given in (copies.share, of_others))]
        for unit, by_n in copies.share.items()
        for n in by_n
    ]
    put_table(["n-grams of", "found", "held-out text"], rows)


def _share(shares: Shares | None, unit: str, n: str) -> str:
    share = None if shares is None else shares[unit][n]
    return MISSING if share is None else percentage(share)
