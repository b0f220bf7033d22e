"""The parts of the toy task: first sentence, tab, second sentence, tab, label on each line."""

from dataclasses import dataclass

from seqgen import store
from seqgen.cli.shell.inputs import Inputs
from seqgen.cli.shell.model_options import CommandVariant
from seqgen.cli.shell.output import put_record
from seqgen.errors import SeqgenError
from seqgen.plugins.labels.datasets import ExampleDataset
from seqgen.plugins.labels.examples import TEXTS, ExampleEncoder
from seqgen.plugins.labels.predict import label_totals
from seqgen.settings import DataConfig


class PairEncoder(ExampleEncoder):
    """Each of the two sentences starts after a start symbol."""

    def ids(self, example):
        first, tab, second = example.text.partition("\t")
        if not tab:
            raise SeqgenError(
                f"line {example.line} is not a pair; each is first<TAB>second<TAB>label"
            )
        sides = (self.tokenizer.encode(side).tolist() for side in (first, second))
        return [token for side in sides for token in (self.start, *side)]


@dataclass
class SentencePairs(ExampleDataset):
    format = TEXTS
    encoder = PairEncoder


def put_accuracy(model, file, json, quiet):
    for name in model or [None]:
        stored = store.find(name)
        network, tokenizer = stored.load()
        tokens = SentencePairs.tokens_of(stored, tokenizer)
        encoder = PairEncoder(TEXTS, tokenizer, tokens.classes, tokens.start)
        assert stored.settings("data", DataConfig).documents == "line"
        source = Inputs(quiet).open_one(file)
        examples = TEXTS.read(source.chunks(), source.title)
        totals = label_totals(network, encoder.corpus(examples, source.title))
        put_record({"model": stored.name, "accuracy": totals.accuracy})


EVAL = CommandVariant(put_accuracy, "models that compare sentences")
