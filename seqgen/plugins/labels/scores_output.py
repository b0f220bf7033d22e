"""Output of `seqgen eval` and `seqgen compare` for classifiers and taggers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seqgen.cli.compare import ComparedModels, ComparedText, ComparisonTests
from seqgen.cli.evaluate import MeasuredFile
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Inputs
from seqgen.cli.shell.model_options import CommandVariant, Device, FixedSeed, ModelNames
from seqgen.cli.shell.output import Output, RecordedOutput, put, say
from seqgen.cli.shell.tables import (
    MISSING,
    count,
    declared_columns,
    figure,
    percentage,
    put_table,
    share,
    short_count,
)
from seqgen.settings import Options, redeclare

if TYPE_CHECKING:
    from seqgen.plugins.labels.evaluate import LabelComparison, LabelEvaluation
    from seqgen.plugins.labels.predict import LoadedLabeller

# A confusion matrix with more labels than this is shown by --json alone; a terminal shows the
# pairs of labels that are confused most often.
WIDEST, MOST_PAIRS = 12, 10


@takes_options
def put_label_scores(
    measured: MeasuredFile, models: ModelNames, machine: Device, out: RecordedOutput
) -> None:
    """Evaluate classifiers or taggers on a file or on held-out examples; print the results."""
    from seqgen.plugins.labels.evaluate import check_labels, evaluate_labels

    labellers, given = _opened(models.names, measured.file, machine, out)
    for loaded in labellers:
        check_labels(loaded, **given)
    evaluations = []
    for loaded in labellers:
        out.notice(f"measuring {loaded.stored.name}")
        evaluations.append(evaluate_labels(loaded, **given))
        out.record(evaluations[-1])
    if out.json:
        return
    _table(evaluations)
    for one in evaluations:
        _put_by_label(one)
        if out.explains:
            say(f"{one.model}: {one.signature}")


def _opened(
    names: Sequence[str | None], file: str | None, machine: Device, out: Output
) -> tuple[list[LoadedLabeller], dict[str, Any]]:
    """Load models, and the examples of a file; no examples for held-out data."""
    from seqgen.plugins.labels.predict import load_labeller
    from seqgen.store.loading import Work

    work = Work.of_files([] if file is None else [file])
    labellers = [load_labeller(name, machine.device, work) for name in names]
    out.uses(labellers)
    if file is None:
        return labellers, {}
    source = Inputs(out.quiet).open_one(file)
    examples = labellers[0].format.read(source.chunks(), source.title)
    return labellers, {"examples": examples, "name": source.title}


LABEL_SCORES = CommandVariant(put_label_scores, "models that predict labels")


def _table(evaluations: Sequence[LabelEvaluation]) -> None:
    figures = declared_columns(evaluations)
    figures["majority label"] = lambda one: (
        f"{percentage(one.majority['accuracy'])} ({one.majority['label']})"
    )
    rows = [[label, *map(show, evaluations)] for label, show in figures.items()]
    put_table(["", *(one.model for one in evaluations)], rows)


def _put_by_label(one: LabelEvaluation) -> None:
    """Print precision, recall and F1 of each label, and the most common confusions."""
    names = one.confusion["labels"]
    wide = len(names) > WIDEST
    heads = [one.model, "precision", "recall", "F1", "count", *([] if wide else names)]
    rows = []
    for figures, counts in zip(one.by_label, one.confusion["counts"], strict=True):
        shares = (percentage(figures[key]) for key in ("precision", "recall", "f1"))
        row = [figures["label"], *shares, count(figures["count"])]
        rows.append([*row, *([] if wide else map(count, counts))])
    put("\n")
    put_table(heads, rows)
    pairs = most_confused(names, one.confusion["counts"]) if wide else []
    if pairs:
        put("\n")
        put_table([f"{one.model}: label", "predicted as", "times", "share of the label"], pairs)


def most_confused(names: Sequence[str], counts: Sequence[Sequence[int]]) -> list[list[str]]:
    """List the pairs of labels that are confused most often, most frequent first.

    Args:
        names: of C labels.
        counts: (C, C), how often each label was predicted as which.

    Returns:
        Rows of a label, what it was predicted as, how often, and in which share of its cases.
    """
    pairs = [
        (-times, i, j)
        for i, row in enumerate(counts)
        for j, times in enumerate(row)
        if i != j and times
    ]
    return [
        [names[i], names[j], count(-less), percentage(-less / sum(counts[i]))]
        for less, i, j in sorted(pairs)[:MOST_PAIRS]
    ]


class ComparedLabels(Options):
    """Options of `seqgen compare` for label models: models, examples and number of resamples."""

    models: tuple[str, ...] = redeclare(ComparedModels, "models")
    data: str | None = redeclare(ComparedText, "data")
    resamples: int = redeclare(ComparisonTests, "resamples")


@takes_options
def put_label_comparison(
    compared: ComparedLabels, seed: FixedSeed, machine: Device, out: RecordedOutput
) -> None:
    """Compare classifiers or taggers by accuracy; print the significance tests."""
    from seqgen.plugins.labels.evaluate import compare_labels

    labellers, given = _opened(compared.models, compared.data, machine, out)
    records = compare_labels(labellers, **given, seed=seed.seed, resamples=compared.resamples)
    if out.records(records):
        return
    _compared_table(records)
    if out.explains:
        say(records[0].signature)


LABEL_COMPARISON = CommandVariant(put_label_comparison, "models that predict labels")


def _compared_table(records: Sequence[LabelComparison]) -> None:
    heads = ["model", "parameters", "accuracy", "difference", "p", "McNemar's p", "only this right"]
    put_table(
        [*heads, "only best right"],
        [
            [one.model, short_count(one.parameters), share(one.accuracy), *_tests(one)]
            for one in records
        ],
    )


def _tests(one: LabelComparison) -> list[str]:
    """Format the table columns that compare a model with the best one."""
    if one.p_value is None:
        return ["best", *[MISSING] * 4]
    tested = one.mcnemar
    exact = [MISSING] * 3
    if tested is not None:
        exact = [figure(tested["p_value"]), count(tested["only_this"]), count(tested["only_best"])]
    return [share(one.difference), figure(one.p_value), *exact]
