"""`seqgen predict`: tell the labels of texts, or the tags of words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import options
from seqgen.cli.inputs import Inputs, file_name, given_or_piped
from seqgen.cli.output import put, put_record, say

if TYPE_CHECKING:
    from seqgen.commands.labelling.predict import LoadedLabeller
    from seqgen.data.examples import Example


def predict(
    file: Annotated[
        str | None,
        typer.Argument(
            help="For a classifier, a text per line; for a tagger, a word per line with an empty "
            "line after each sentence. - is standard input.",
            parser=file_name,
            metavar="[FILE]",
            show_default=False,
        ),
    ] = None,
    model: options.Model = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Tell the label of each text, or the tag of each word.

    The model is one of `seqgen train FILE --task classify` or `--task tag`. A classifier writes a
    label per line; a tagger writes word, tab, tag, and an empty line after each sentence. Of
    several columns only the first is read, as the word. --json also shows probabilities.
    """
    from seqgen.commands.labelling.predict import load_labeller
    from seqgen.commands.labelling.predict import predict as predict_labels

    (name,) = given_or_piped([file] if file else None, "seqgen predict FILE")
    loaded = load_labeller(model, device)
    source = Inputs(quiet).open_one(name)
    batches = _examples(loaded, source.pass_on(), source.title, quiet)
    for record in predict_labels(loaded, batches, source.title):
        if json:
            put_record(record)
        elif loaded.task == "classify":
            put(f"{record.label}\n")
        else:
            pairs = zip(record.tokens, record.tags, strict=True)
            put("".join(f"{word}\t{tag}\n" for word, tag in pairs) + "\n")


def _examples(
    loaded: LoadedLabeller, chunks: Iterable[str], name: str, quiet: bool
) -> Iterator[list[Example]]:
    """Yield the examples of a text, those together that came together."""
    from seqgen.data.examples import FORMATS

    empty = True
    for batch in FORMATS[loaded.task].reader(name, labelled=False).batches(chunks):
        empty = empty and not batch
        yield batch
    if empty and not quiet:
        say(f"{name} is empty: nothing to tell")
