"""Probabilities of labels under a classifier or a tagger, and how often it is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from seqgen.data.corpus import Corpus
from seqgen.data.sources import Sources
from seqgen.models.encoders.labeller import Labeller

# Texts that are read side by side; they are sorted by length within pools of so many batches.
ROWS, POOL = 64, 16


@dataclass(frozen=True)
class LabelTotals:
    """Labels of several examples, added up.

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
        """The cross-entropy."""
        return self.nats / self.labels

    @property
    def accuracy(self) -> float:
        """The share that was right."""
        return self.correct / self.labels


@torch.inference_mode()
def log_probs_of(
    model: Labeller, sources: Sources, most: int | None = None, rows: int = ROWS
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number of each text and its log-probabilities, (1, C), or (L, C) of a tagger.

    Texts of about one length are read side by side, which changes nothing.

    Args:
        model: in evaluation mode.
        sources: the texts, each from its start symbol on.
        most: read only so many from the beginning.
        rows: texts side by side, at most.
    """
    count = len(sources) if most is None else min(most, len(sources))
    for first in range(0, count, POOL * rows):
        lengths = sources.lengths[first : min(first + POOL * rows, count)]
        pool = first + np.argsort(lengths, kind="stable")
        for at in range(0, pool.size, rows):
            which = pool[at : at + rows]
            source = sources.rows(which)
            log_probs = model(source).log_softmax(-1).double().cpu().numpy()  # (S, T', C)
            for number, length, of_text in zip(which, source.lengths, log_probs, strict=True):
                yield int(number), of_text[: length if len(of_text) > 1 else 1]


def label_totals(model: Labeller, corpus: Corpus, most: int | None = None) -> LabelTotals:
    """Return how well a model predicts the labels of examples.

    Args:
        model: in evaluation mode.
        corpus: of an `ExampleEncoder`.
        most: look only at so many examples from the beginning.
    """
    none, _ = corpus.unscored
    labels, nats, correct = 0, 0.0, 0
    for number, log_probs in log_probs_of(model, corpus.sources, most):
        targets = corpus.tokens[corpus.starts[number] : corpus.ends[number]]
        places = np.flatnonzero(targets < none)
        at_labels, true = log_probs[places], targets[places].astype(np.int64)
        labels += places.size
        nats -= float(at_labels[np.arange(places.size), true].sum())
        correct += int(np.count_nonzero(at_labels.argmax(-1) == true))
    return LabelTotals(labels, nats, correct)
