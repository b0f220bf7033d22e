"""Which classifier or tagger is right more often, and whether the difference is chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from seqgen.commands.labelling.evaluate import LabelFigures, check_labels, held_out
from seqgen.commands.labelling.predict import LoadedLabeller, log_probs_of_labels
from seqgen.data.examples import Example
from seqgen.errors import SeqgenError, UsageError
from seqgen.metrics.bootstrap import RESAMPLES, interval, p_value, wilson
from seqgen.metrics.classification import WithInterval, estimated, mcnemar, resampled


@dataclass(frozen=True)
class McNemar:
    """McNemar's test of a model against the best one.

    Attributes:
        only_this: how many texts only this model labels rightly.
        only_best: how many only the best one does.
        p_value: two-sided and exact, of "both are right equally often".
    """

    only_this: int
    only_best: int
    p_value: float


@dataclass(frozen=True)
class LabelComparison(LabelFigures):
    """The keys of a record of `seqgen compare --json` of classifiers or taggers, in order.

    Attributes:
        accuracy: the share predicted rightly, with its interval as in `seqgen eval`.
        best: the model with the highest accuracy; of several, the first.
        difference: of the accuracy, to the best; with the interval of the paired bootstrap.
        p_value: of "no difference to the best", by the same bootstrap; None for the best.
        mcnemar: `McNemar`; None for the best, and for taggers, the errors of which are correlated
            within a sentence.
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
    """Compare classifiers, or taggers, on the same examples; return them as given.

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
            signature=_signature(by_word, seed, resamples),
        )
        for i, loaded in enumerate(models)
    ]


def _accuracy(correct: int, labels: int, samples: np.ndarray | None) -> WithInterval:
    """Return an accuracy with Wilson's interval, or with that of its bootstrap samples (R,)."""
    interval_of = wilson(correct, labels) if samples is None else interval(samples)
    return WithInterval(correct / labels, *interval_of)


def _beside_best(
    hits: np.ndarray, samples: np.ndarray, labels: int, is_best: bool, by_word: bool
) -> dict[str, Any]:
    """Return `difference`, `p_value` and `mcnemar` of `LabelComparison`.

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
        tested = asdict(McNemar(only_this, only_best, mcnemar(only_this, only_best)))
    return {
        "difference": asdict(estimated(value, differences)),
        "p_value": None if is_best else p_value(differences),
        "mcnemar": tested,
    }


def common_examples(models: Sequence[LoadedLabeller]) -> list[Example]:
    """Return the examples that all of some models held out.

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
    """Return how many labels of each example a model predicts rightly, (E,)."""
    return np.array(
        [
            np.count_nonzero(log_probs.argmax(-1) == loaded.encoder.numbers(example, name))
            for log_probs, example in log_probs_of_labels(loaded, examples, name)
        ]
    )


def _signature(by_word: bool, seed: int, resamples: int) -> str:
    """Return how figures were made."""
    unit = "sentences" if by_word else "examples"
    accuracy = f"bootstrap-of-{unit}" if by_word else "wilson"
    tests = ["p:paired-bootstrap", *([] if by_word else ["mcnemar:exact"])]
    intervals = ["interval:95%", f"accuracy:{accuracy}", f"difference:bootstrap-of-{unit}"]
    return "|".join([*intervals, *tests, f"resamples:{resamples}", f"seed:{seed}"])
