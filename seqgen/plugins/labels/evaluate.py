"""Evaluation and comparison of classifiers and taggers: accuracy, F1 and significance tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from seqgen.errors import SeqgenError, UsageError
from seqgen.metrics.bootstrap import RESAMPLES, p_value, percentile_interval, wilson_interval
from seqgen.plugins.labels.classification import (
    IntervalEstimate,
    confusion,
    entities,
    estimated,
    f1_of,
    macro_f1,
    marks_entities,
    mcnemar,
    resampled,
)
from seqgen.plugins.labels.examples import Example
from seqgen.plugins.labels.predict import LoadedLabeller, log_probs_of_labels
from seqgen.text.reading import Text
from seqgen.wording import ShortRepr, column

# Of more labels than this, those that neither occur nor were predicted are left out: every pair of
# labels has a place in the matrix of confusions.
MOST_LABELS = 1000


@dataclass(frozen=True)
class LabelFigures:
    """Common first fields of the records of `seqgen eval` and `compare` for label models.

    Attributes:
        model: its name.
        architecture: its name in the registry.
        parameters: how many numbers it has.
        file: what it was measured on.
        examples: how many texts or sentences.
        labels: how many labels were predicted.
    """

    model: str
    architecture: str
    parameters: int
    file: str
    examples: int = column("examples", "count")
    labels: int = column("labels", "count")


@dataclass(frozen=True, repr=False)
class LabelEvaluation(ShortRepr, LabelFigures):
    """Record of `seqgen eval --json` for a classifier or a tagger.

    Attributes:
        nats_per_label: the cross-entropy.
        accuracy: the share predicted rightly, with its interval: Wilson's for classifiers; for
            taggers, whose errors within a sentence are correlated, by resampling sentences.
        majority: the label that occurs most often in the file, and the accuracy of predicting it
            everywhere.
        macro_f1: the mean of F1 over labels; by resampling, as the next.
        entity_precision, entity_recall, entity_f1: of whole entities, all types together; None
            where tags do not mark any.
        by_label: precision, recall, F1 and number of each label.
        confusion: `labels`, and in `counts` a row for each: how often it was predicted as which.
            Of more than `MOST_LABELS`, only those that occur or were predicted, also in `by_label`.
        signature: how intervals and entities were made.
    """

    nats_per_label: float = column("nats/label", "figure")
    accuracy: dict[str, float] = column("accuracy", "share")
    majority: dict[str, Any] = column("majority label")
    macro_f1: dict[str, float] = column("macro-F1", "share")
    entity_precision: float | None = column("entity precision", "percentage", unless=None)
    entity_recall: float | None = column("entity recall", "percentage", unless=None)
    entity_f1: dict[str, float] | None = column("entity F1", "share", unless=None)
    by_label: list[dict[str, Any]]
    confusion: dict[str, Any]
    signature: str


def evaluate_labels(
    loaded: LoadedLabeller, examples: list[Example] | None = None, name: str = "validation"
) -> LabelEvaluation:
    """Measure the accuracy and F1 of a classifier or a tagger on labelled examples.

    Args:
        loaded: the model.
        examples: with labels; the held-out ones if None.
        name: of their file.

    Raises:
        SeqgenError: a label is not known, or an example is too long; or nothing was held out.
    """
    examples = held_out(loaded) if examples is None else examples
    truth = [np.array(loaded.encoder.numbers(example, name)) for example in examples]
    log_probs = [array for array, _ in log_probs_of_labels(loaded, examples, name)]
    predicted = [array.argmax(-1) for array in log_probs]
    rows = zip(log_probs, truth, strict=True)
    nats = -sum(float(array[np.arange(len(t)), t].sum()) for array, t in rows)
    flat = np.concatenate(truth), np.concatenate(predicted)
    names = loaded.classes.names
    if len(names) > MOST_LABELS:
        met = np.unique(np.concatenate(flat))
        names = [names[label] for label in met]
        truth, predicted = ([np.searchsorted(met, x) for x in each] for each in (truth, predicted))
        flat = np.concatenate(truth), np.concatenate(predicted)
    matrix = confusion(*flat, len(names))
    true = matrix.sum(1)
    most = int(true.argmax())
    entity_figures = _entity_figures(names, truth, predicted)
    return LabelEvaluation(
        model=loaded.stored.name,
        architecture=loaded.stored.config["architecture"],
        parameters=loaded.model.parameter_count(),
        file=name,
        examples=len(examples),
        labels=int(matrix.sum()),
        nats_per_label=nats / int(matrix.sum()),
        **_figures(matrix, truth, predicted, by_sentence=loaded.format.by_word),
        majority={"label": names[most], "accuracy": float(true[most] / true.sum())},
        **entity_figures,
        by_label=_by_label(names, matrix),
        confusion={"labels": list(names), "counts": matrix.tolist()},
        signature=_signature(
            loaded.format.by_word,
            "f1",
            [] if entity_figures["entity_f1"] is None else ["entities:conlleval"],
        ),
    )


def check_labels(
    loaded: LoadedLabeller, examples: list[Example] | None = None, name: str = "validation"
) -> None:
    """Check early that a model knows all labels of the examples for `evaluate_labels`.

    Raises:
        SeqgenError: a label is not known; or nothing was held out.
    """
    for example in held_out(loaded) if examples is None else examples:
        loaded.encoder.numbers(example, name)


def held_out(loaded: LoadedLabeller) -> list[Example]:
    """Return the examples that a model held out from training.

    Raises:
        SeqgenError: there are none.
    """
    path = loaded.stored.validation_text
    if path is None:
        raise SeqgenError(f"{loaded.stored.name} held nothing out; give a FILE")
    return loaded.format.read(Text((path,)).chunks(), "the held-out part")


Numbers = Sequence[np.ndarray]


def _figures(
    matrix: np.ndarray, truth: Numbers, predicted: Numbers, by_sentence: bool
) -> dict[str, dict[str, float]]:
    """Compute accuracy and macro-F1 with their confidence intervals."""
    hits, labels = int(matrix.trace()), int(matrix.sum())
    counts = _counts(truth, predicted, len(matrix))
    samples = np.split(resampled(counts), 3, axis=1)  # hits, predicted and true, (R, C) each
    drawn = samples[0].sum(-1) / samples[2].sum(-1) if by_sentence else None
    whole = matrix.diagonal(), matrix.sum(0), matrix.sum(1)
    f1 = estimated(float(macro_f1(*whole)), macro_f1(*samples))
    accuracy = _accuracy(hits, labels, drawn)
    return {"accuracy": asdict(accuracy), "macro_f1": asdict(f1)}


def _counts(truth: Numbers, predicted: Numbers, classes: int) -> np.ndarray:
    """Count the hits, predictions and occurrences of each label per example, (E, 3 C)."""
    counts = np.zeros((len(truth), 3, classes))
    for row, t, p in zip(counts, truth, predicted, strict=True):
        np.add.at(row[0], t[t == p], 1)
        np.add.at(row[1], p, 1)
        np.add.at(row[2], t, 1)
    return counts.reshape(len(truth), -1)


def _entity_figures(names: Sequence[str], truth: Numbers, predicted: Numbers) -> dict[str, Any]:
    """Compute precision, recall and F1 of entities; None each unless tags mark entities."""
    if not marks_entities(names):
        return dict.fromkeys(("entity_precision", "entity_recall", "entity_f1"))
    counts = np.zeros((len(truth), 3))
    for row, t, p in zip(counts, truth, predicted, strict=True):
        of_truth, of_model = (entities([names[number] for number in numbers]) for numbers in (t, p))
        row[:] = len(of_truth & of_model), len(of_model), len(of_truth)
    hits, predicted_count, true_count = counts.sum(0)
    samples = f1_of(*resampled(counts).T)
    return {
        "entity_precision": float(hits / predicted_count) if predicted_count else 0.0,
        "entity_recall": float(hits / true_count) if true_count else 0.0,
        "entity_f1": asdict(estimated(float(f1_of(*counts.sum(0)[:, None])[0]), samples)),
    }


def _by_label(names: Sequence[str], matrix: np.ndarray) -> list[dict[str, Any]]:
    hits, predicted, true = matrix.diagonal(), matrix.sum(0), matrix.sum(1)
    f1 = f1_of(hits, predicted, true)
    return [
        {
            "label": name,
            "precision": float(hits[i] / predicted[i]) if predicted[i] else 0.0,
            "recall": float(hits[i] / true[i]) if true[i] else 0.0,
            "f1": float(f1[i]),
            "count": int(true[i]),
        }
        for i, name in enumerate(names)
    ]


def _signature(by_word: bool, figure: str, parts: Sequence[str]) -> str:
    """Describe how the confidence intervals were computed, as a short signature string."""
    unit = "sentences" if by_word else "examples"
    accuracy = f"bootstrap-of-{unit}" if by_word else "wilson"
    return "|".join(
        ["interval:95%", f"accuracy:{accuracy}", f"{figure}:bootstrap-of-{unit}", *parts]
    )


@dataclass(frozen=True)
class LabelComparison(LabelFigures):
    """Record of `seqgen compare --json` for one of several classifiers or taggers.

    Attributes:
        accuracy: the share predicted rightly, with its interval as in `seqgen eval`.
        best: the model with the highest accuracy; of several, the first.
        difference: of the accuracy, to the best; with the interval of the paired bootstrap.
        p_value: of "no difference to the best", by the same bootstrap; None for the best.
        mcnemar: McNemar's exact test against the best: how many texts `only_this` model and
            `only_best` label rightly, and the two-sided `p_value` of "both are right equally
            often"; None for the best, and for taggers, whose errors are correlated within a
            sentence.
        signature: how intervals and p-values were made.
    """

    accuracy: dict[str, float]
    best: str
    difference: dict[str, float]
    p_value: float | None
    mcnemar: dict[str, float] | None
    signature: str


def compare_labels(
    models: Sequence[LoadedLabeller],
    examples: list[Example] | None = None,
    name: str = "validation",
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[LabelComparison]:
    """Compare classifiers, or taggers, on the same examples, in the given order.

    Args:
        models: at least one, of one kind.
        examples: with labels; those that all models held out if None.
        name: of their file.
        seed: of the resampling.
        resamples: of the texts or sentences, the same ones for all models.

    Raises:
        UsageError: a model is given twice.
        SeqgenError: a label is not known, or an example is too long; or nothing is given, and the
            models did not hold out the same examples.
    """
    if len({loaded.stored.name for loaded in models}) < len(models):
        raise UsageError("a model is given twice")
    examples = common_examples(models) if examples is None else examples
    for loaded in models:
        check_labels(loaded, examples, name)
    by_word = models[0].format.by_word
    hits = np.stack([_hits(loaded, examples, name) for loaded in models], axis=1)  # (E, M)
    sizes = np.array([len(example.labels) for example in examples])
    drawn = resampled(np.column_stack([hits, sizes]), seed, resamples)
    samples = drawn[:, :-1] / drawn[:, -1:]  # (R, M)
    correct, labels = hits.sum(0), int(sizes.sum())
    best = int(correct.argmax())
    tests = ["p:paired-bootstrap", *([] if by_word else ["mcnemar:exact"])]
    made = [*tests, f"resamples:{resamples}", f"seed:{seed}"]
    return [
        LabelComparison(
            model=loaded.stored.name,
            architecture=loaded.stored.config["architecture"],
            parameters=loaded.model.parameter_count(),
            file=name,
            examples=len(examples),
            labels=labels,
            accuracy=asdict(_accuracy(int(correct[i]), labels, samples[:, i] if by_word else None)),
            best=models[best].stored.name,
            **_beside_best(hits[:, [i, best]], samples[:, [i, best]], labels, i == best, by_word),
            signature=_signature(by_word, "difference", made),
        )
        for i, loaded in enumerate(models)
    ]


def _accuracy(correct: int, labels: int, samples: np.ndarray | None) -> IntervalEstimate:
    """Compute accuracy with Wilson's interval, or from its bootstrap samples (R,) if given."""
    interval_of = (
        wilson_interval(correct, labels) if samples is None else percentile_interval(samples)
    )
    return IntervalEstimate(correct / labels, *interval_of)


def _beside_best(
    hits: np.ndarray, samples: np.ndarray, labels: int, is_best: bool, by_word: bool
) -> dict[str, Any]:
    """Compute the fields `difference`, `p_value` and `mcnemar` of `LabelComparison`.

    Args:
        hits: (E, 2), how many labels of each example this model and the best predict rightly.
        samples: (R, 2), their accuracies in each resample.
        labels: how many there are.
        is_best: this model is the best.
        by_word: an example has a label for each word.
    """
    differences = samples[:, 0] - samples[:, 1]
    value = float(hits[:, 0].sum() - hits[:, 1].sum()) / labels
    tested = None
    if not is_best and not by_word:
        only_this = int((hits[:, 0] > hits[:, 1]).sum())
        only_best = int((hits[:, 0] < hits[:, 1]).sum())
        tested = {"only_this": only_this, "only_best": only_best}
        tested["p_value"] = mcnemar(only_this, only_best)
    return {
        "difference": asdict(estimated(value, differences)),
        "p_value": None if is_best else p_value(differences),
        "mcnemar": tested,
    }


def common_examples(models: Sequence[LoadedLabeller]) -> list[Example]:
    """Return the examples that all models held out, which must be the same ones.

    Raises:
        SeqgenError: one held nothing out; or two held out different examples.
    """
    first, *others = ([one.content for one in held_out(loaded)] for loaded in models)
    for loaded, contents in zip(models[1:], others, strict=True):
        if contents != first:
            raise SeqgenError(
                f"{models[0].stored.name} and {loaded.stored.name} held out different examples; "
                "give --data FILE"
            )
    return held_out(models[0])


def _hits(loaded: LoadedLabeller, examples: list[Example], name: str) -> np.ndarray:
    """Count how many labels of each example a model predicts correctly, (E,)."""
    return np.array(
        [
            np.count_nonzero(log_probs.argmax(-1) == loaded.encoder.numbers(example, name))
            for log_probs, example in log_probs_of_labels(loaded, examples, name)
        ]
    )
