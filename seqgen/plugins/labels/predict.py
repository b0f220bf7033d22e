"""Prediction of the labels of texts and the tags of words, with probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqgen import store
from seqgen.engines.ops import ops_of, without_gradients
from seqgen.errors import SeqgenError, UsageError
from seqgen.plugins.labels.examples import Example, ExampleEncoder, Format
from seqgen.plugins.labels.models.labelling import LabelsOfFeatures
from seqgen.settings import DataConfig
from seqgen.store import StoredModel
from seqgen.store.loading import Work, load_any
from seqgen.text.corpus import Corpus, Framing
from seqgen.text.labels import Classes
from seqgen.text.sources import Sources

# Texts that are read side by side; they are sorted by length within pools of so many batches.
ROWS, POOL = 64, 16


@dataclass(frozen=True)
class LabelTotals:
    """Sums over labelled examples: labels, nats and correct predictions.

    Attributes:
        labels: how many there are.
        nats: minus the log-probability of all of them.
        correct: how many were the most probable one.
    """

    labels: int
    nats: float
    correct: int

    @property
    def nats_per_label(self) -> float:
        """Cross-entropy in nats per label."""
        return self.nats / self.labels

    @property
    def accuracy(self) -> float:
        """Share of correct predictions."""
        return self.correct / self.labels


@without_gradients
def log_probs_of(
    model: LabelsOfFeatures, sources: Sources, most: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each text's index and label log-probabilities: (1, C), or (L, C) for a tagger.

    Texts of about one length are read side by side, which changes nothing.

    Args:
        model: in evaluation mode.
        sources: the texts, each from its start symbol on.
        most: read only so many from the beginning.
    """
    count = len(sources) if most is None else min(most, len(sources))
    for first in range(0, count, POOL * ROWS):
        lengths = sources.lengths[first : min(first + POOL * ROWS, count)]
        pool = first + np.argsort(lengths, kind="stable")
        for at in range(0, pool.size, ROWS):
            which = pool[at : at + ROWS]
            source = sources.rows(which)
            logits = model(source)  # (S, T', C)
            ops = ops_of(logits)
            log_probs = ops.array(ops.log_softmax(logits)).astype(np.float64)
            for number, length, of_text in zip(which, source.lengths, log_probs, strict=True):
                yield int(number), of_text[: length if len(of_text) > 1 else 1]


def label_totals(model: LabelsOfFeatures, corpus: Corpus, most: int | None = None) -> LabelTotals:
    """Sum the loss and the correct predictions of a model over labelled examples.

    Args:
        model: in evaluation mode.
        corpus: of an `ExampleEncoder`.
        most: look only at so many examples from the beginning.
    """
    labels, nats, correct = 0, 0.0, 0
    for number, log_probs in log_probs_of(model, corpus.sources, most):
        span = slice(corpus.starts[number], corpus.ends[number])
        targets, places = corpus.tokens[span], np.flatnonzero(corpus.counted[span])
        at_labels, true = log_probs[places], targets[places].astype(np.int64)
        labels += places.size
        nats -= float(at_labels[np.arange(places.size), true].sum())
        correct += int(np.count_nonzero(at_labels.argmax(-1) == true))
    return LabelTotals(labels, nats, correct)


@dataclass(frozen=True)
class LoadedLabeller:
    """A loaded classifier or tagger, with the encoder of its texts.

    Attributes:
        stored: where it came from.
        model: in evaluation mode.
        encoder: makes ids of examples.
        data: how its texts were read.
    """

    stored: StoredModel
    model: LabelsOfFeatures
    encoder: ExampleEncoder
    data: DataConfig

    @property
    def format(self) -> Format:
        """File format of the model's examples."""
        return self.encoder.format

    @property
    def classes(self) -> Classes:
        """The labels that the model predicts."""
        return self.encoder.classes


@dataclass(frozen=True)
class Prediction:
    """Record of one text from `seqgen predict --json` with a classifier.

    Attributes:
        index: of the text, from 0.
        text: it.
        label: the most probable one.
        probability: of the label.
    """

    index: int
    text: str
    label: str
    probability: float


@dataclass(frozen=True)
class TaggedSentence:
    """Record of one sentence from `seqgen predict --json` with a tagger.

    Attributes:
        index: of the sentence, from 0.
        tokens: its words.
        tags: the most probable tag of each.
        probabilities: of the tags.
    """

    index: int
    tokens: list[str]
    tags: list[str]
    probabilities: list[float]


def load_labeller(name: str | Path | None, device: str, work: Work) -> LoadedLabeller:
    """Load a classifier or a tagger.

    Args:
        name: a name, a path, or None for the latest model.
        device: auto, cpu, cuda or mps.
        work: see `load`.

    Raises:
        UsageError: it is no such model.
        SeqgenError: there is no such model, or it is damaged.
    """
    stored = store.find_all(name).network_for("predict")
    if "predict" not in stored.task.serves:
        raise UsageError(
            f"{stored.name} predicts no labels; train a model that does with seqgen train FILE "
            "--task classify, or --task tag"
        )
    loaded = load_any(stored, device, work=work)
    model, tokenizer, data = loaded.model, loaded.tokenizer, loaded.data
    classes = Classes.load(stored.path / store.TOKENIZER)
    if model.config.classes != len(classes):
        raise SeqgenError(f"{stored.path} is damaged: its model and its tokenizer do not fit")
    start = Framing.of(tokenizer, data.documents).start
    encoder = ExampleEncoder(Format.of(model.by_word), tokenizer, classes, start)
    return LoadedLabeller(stored, model, encoder, data)


def log_probs_of_labels(
    loaded: LoadedLabeller, examples: list[Example], name: str
) -> list[tuple[np.ndarray, Example]]:
    """Compute the log-probabilities (W, C) of each example's labels, in the order given.

    Args:
        loaded: the model.
        examples: texts, or sentences; their labels are not looked at.
        name: of their file, for errors.

    Raises:
        SeqgenError: one is longer than the model reads; names its line.
    """
    most = loaded.model.window
    sources = loaded.encoder.sources(examples)
    for example, length in zip(examples, sources.lengths.tolist(), strict=True):
        if most is not None and length > most:
            raise SeqgenError(
                f"{name}, line {example.line}: the text has {length - 1:,} tokens, and "
                f"{loaded.stored.name} reads at most {most - 1:,}"
            )
    by_number = dict(log_probs_of(loaded.model, sources))
    return [
        (by_number[i][loaded.encoder.places(example)], example)
        for i, example in enumerate(examples)
    ]


def predict(
    loaded: LoadedLabeller, batches: Iterable[list[Example]], name: str = "the text"
) -> Iterator[Prediction | TaggedSentence]:
    """Predict the labels of examples, yielding records in the order given.

    Args:
        loaded: the model.
        batches: examples that come together.
        name: of their file, for errors.

    Raises:
        SeqgenError: as `log_probs_of_labels`.
    """
    index = 0
    for examples in batches:
        for log_probs, example in log_probs_of_labels(loaded, examples, name):
            best = log_probs.argmax(-1)
            labels = [loaded.classes.names[number] for number in best]
            probabilities = np.exp(log_probs.max(-1)).tolist()
            if loaded.format.by_word:
                yield TaggedSentence(index, list(example.words), labels, probabilities)
            else:
                yield Prediction(index, example.text, labels[0], probabilities[0])
            index += 1
