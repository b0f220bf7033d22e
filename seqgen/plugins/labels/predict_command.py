"""`seqgen predict`: predict the labels of texts, or the tags of words."""

from __future__ import annotations

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Inputs, given_or_piped
from seqgen.cli.shell.model_options import Device, ModelName
from seqgen.cli.shell.output import RecordedOutput, put, put_record
from seqgen.cli.shell.prompts import content_of
from seqgen.settings import Options, file_argument


class ExampleFile(Options):
    """Options of `seqgen predict`: the texts to label."""

    file: str | None = file_argument(
        "For a classifier, a text per line; for a tagger, a word per line with an empty line after "
        "each sentence. - is standard input."
    )


@takes_options
def predict(texts: ExampleFile, model: ModelName, machine: Device, out: RecordedOutput) -> None:
    """Predict the label of each text, or the tag of each word.

    The model is one of `seqgen train FILE --task classify` or `--task tag`. A classifier writes a
    label per line; a tagger writes word, tab, tag, and an empty line after each sentence. Of
    several columns only the first is read, as the word. --json also shows probabilities.
    """
    from seqgen.plugins.labels.predict import load_labeller
    from seqgen.plugins.labels.predict import predict as predict_labels
    from seqgen.store.loading import Work

    (name,) = given_or_piped([texts.file], "seqgen predict FILE")
    loaded = load_labeller(model.model, machine.device, Work.of_files([name]))
    out.uses([loaded])
    source = Inputs(out.quiet).open_one(name)
    batches = loaded.format.reader(source.title, labelled=False).batches(source.pass_on())
    examples = content_of(source.title, filter(None, batches), "nothing to predict", out)
    for record in predict_labels(loaded, examples, source.title):
        if out.json:
            put_record(record)
        elif loaded.format.by_word:
            pairs = zip(record.tokens, record.tags, strict=True)
            put("".join(f"{word}\t{tag}\n" for word, tag in pairs) + "\n")
        else:
            put(f"{record.label}\n")
