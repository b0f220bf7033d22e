"""Measures of classification: confusion matrix, F1, entities, and bootstrap intervals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from seqgen.hashing import hash64
from seqgen.metrics.bootstrap import draw_resamples, percentile_interval

RESAMPLES = 1000
# More examples than this are resampled in random groups, so many of them.
GROUPS = 2000
# Tags that mark entities: outside, or a place in an entity and its type.
ENTITY_TAG = re.compile(r"O|[BIES](-.+)?")


def confusion(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Count how often label i was predicted as j: the confusion matrix (C, C), int64.

    Args:
        truth: (N,) of int, the labels.
        predicted: (N,) of int, the predicted labels.
        classes: C.
    """
    pairs = truth * classes + predicted
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, -1)


def f1_of(hits: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Compute F1 = 2 hits / (predicted + true), with 0 for 0 / 0."""
    total = predicted + true
    return np.divide(2 * hits, total, out=np.zeros(hits.shape), where=total > 0)


def macro_f1(hits: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Compute macro-F1 (...): the mean F1 of the labels that occur or were predicted.

    Args:
        hits: (..., C), how often each label was predicted rightly.
        predicted: (..., C), how often it was predicted.
        true: (..., C), how often it was the true label.
    """
    counted = np.count_nonzero(predicted + true, axis=-1)
    return f1_of(hits, predicted, true).sum(-1) / np.maximum(counted, 1)


def marks_entities(tags: Iterable[str]) -> bool:
    """Check whether all tags are entity tags, as in BIO: O, B-PER, I-PER."""
    tags = set(tags)
    return all(ENTITY_TAG.fullmatch(tag) for tag in tags) and any(tag[:1] != "O" for tag in tags)


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Extract the entities of a tagged sentence: type, first word, and the word after the last.

    As conlleval counts them (Tjong Kim Sang and De Meulder 2003): an I- that continues no entity,
    or follows one of another type, begins an entity. E- ends one, and S- is one (IOBES).
    """
    spans, begin = set(), None
    previous, kind = "O", ""
    for at, tag in enumerate([*tags, "O"]):
        entity_type = tag[2:]
        breaks = tag[0] in "OBS" or previous in "OES" or entity_type != kind
        if begin is not None and breaks:
            spans.add((kind, begin, at))
            begin = None
        if tag[0] != "O" and begin is None:
            begin = at
        previous, kind = tag[0], entity_type
    return spans


@dataclass(frozen=True)
class IntervalEstimate:
    """A value and its 95 % confidence interval.

    Attributes:
        value: the figure.
        low: the interval, from here ...
        high: ... to here.
    """

    value: float
    low: float
    high: float


def mcnemar(only_one: int, only_other: int) -> float:
    """Compute the two-sided p-value of McNemar's exact test: are two classifiers equally accurate?

    Exact: under it, which of the two is right is a fair coin for each text on which only one of
    them is (McNemar 1947; the binomial instead of his chi-squared).

    Args:
        only_one: how many texts only the first classifier labels rightly.
        only_other: how many only the second does.
    """
    fewer, total = min(only_one, only_other), only_one + only_other
    k = np.arange(1, fewer + 1)
    log_choices = np.concatenate([[0.0], np.cumsum(np.log((total - k + 1) / k))])  # of C(n, k)
    return min(1.0, 2 * float(np.exp(log_choices - total * np.log(2)).sum()))


def resampled(counts: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> np.ndarray:
    """Draw bootstrap samples of examples, and sum their counts per sample: (R, K).

    Args:
        counts: (E, K), of each example.
        seed: of the draws.
        resamples: R.
    """
    if len(counts) > GROUPS:
        order = np.argsort(hash64(seed, np.arange(len(counts))), kind="stable")
        begins = np.linspace(0, len(counts), GROUPS, endpoint=False).astype(np.int64)
        counts = np.add.reduceat(counts[order], begins)
    return draw_resamples(len(counts), seed, resamples) @ counts


def estimated(value: float, samples: np.ndarray) -> IntervalEstimate:
    """Build a value's 95 % interval from its bootstrap samples (R,)."""
    return IntervalEstimate(value, *percentile_interval(samples))
