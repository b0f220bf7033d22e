"""`seqgen predict`: predict the labels of texts, or the tags of words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from seqgen.cli.flags import takes_options
from seqgen.cli.inputs import Inputs, given_or_piped
from seqgen.cli.output import Output, put, put_record
from seqgen.cli.reading import Device, ModelName
from seqgen.configs import Options, file_argument

if TYPE_CHECKING:
    from seqgen.commands.labelling.predict import LoadedLabeller
    from seqgen.data.examples import Example


class ExampleFile(Options):
    """The texts to label."""

    file: str | None = file_argument(
        "For a classifier, a text per line; for a tagger, a word per line with an empty line after "
        "each sentence. - is standard input."
    )


@takes_options
def predict(texts: ExampleFile, model: ModelName, machine: Device, out: Output) -> None:
    """Predict the label of each text, or the tag of each word.

    The model is one of `seqgen train FILE --task classify` or `--task tag`. A classifier writes a
    label per line; a tagger writes word, tab, tag, and an empty line after each sentence. Of
    several columns only the first is read, as the word. --json also shows probabilities.
    """
    from seqgen.commands.labelling.predict import load_labeller
    from seqgen.commands.labelling.predict import predict as predict_labels
    from seqgen.commands.loading import Work

    (name,) = given_or_piped([texts.file] if texts.file else None, "seqgen predict FILE")
    loaded = load_labeller(model.model, machine.device, Work.of_files([name]))
    out.uses([loaded])
    source = Inputs(out.quiet).open_one(name)
    batches = _examples(loaded, source.pass_on(), source.title, out)
    for record in predict_labels(loaded, batches, source.title):
        if out.json:
            put_record(record)
        elif loaded.format.by_word:
            pairs = zip(record.tokens, record.tags, strict=True)
            put("".join(f"{word}\t{tag}\n" for word, tag in pairs) + "\n")
        else:
            put(f"{record.label}\n")


def _examples(
    loaded: LoadedLabeller, chunks: Iterable[str], name: str, out: Output
) -> Iterator[list[Example]]:
    """Yield the examples of a text, those together that came together."""
    empty = True
    for batch in loaded.format.reader(name, labelled=False).batches(chunks):
        empty = empty and not batch
        yield batch
    if empty:
        out.notice(f"{name} is empty: nothing to predict")
