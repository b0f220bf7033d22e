"""What `seqgen compare` shows of classifiers and taggers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqgen.cli.compare import Compared, ComparedText, Tests
from seqgen.cli.flags import takes_options
from seqgen.cli.inputs import Inputs
from seqgen.cli.kinds import OwnWay
from seqgen.cli.label_scores import share
from seqgen.cli.output import Output, say
from seqgen.cli.reading import Device, FixedSeed
from seqgen.cli.tables import MISSING, count, figure, put_table, short_count
from seqgen.configs import Options, same

if TYPE_CHECKING:
    from seqgen.commands.labelling.compare import LabelComparison


class ComparedLabels(Options):
    """The models that are compared, on which examples, and how sure the differences are."""

    models: tuple[str, ...] = same(Compared, "models")
    data: str | None = same(ComparedText, "data")
    resamples: int = same(Tests, "resamples")


@takes_options
def put_label_comparison(
    compared: ComparedLabels, seed: FixedSeed, machine: Device, out: Output
) -> None:
    """Compare classifiers or taggers by accuracy, and show the tests."""
    from seqgen.commands.labelling.compare import compare_labels
    from seqgen.commands.labelling.predict import load_labeller
    from seqgen.commands.loading import Work

    work = Work.of_files([] if compared.data is None else [compared.data])
    labellers = [load_labeller(name, machine.device, work) for name in compared.models]
    given = {}
    if compared.data is not None:
        source = Inputs(out.quiet).open_one(compared.data)
        examples = labellers[0].format.read(source.chunks(), source.title)
        given = {"examples": examples, "name": source.title}
    records = compare_labels(labellers, **given, seed=seed.seed, resamples=compared.resamples)
    if out.records(records):
        return
    _table(records)
    if out.explains:
        say(records[0].signature)


LABEL_COMPARISON = OwnWay(put_label_comparison, "models that predict labels")


def _table(records: Sequence[LabelComparison]) -> None:
    heads = ["model", "parameters", "accuracy", "difference", "p", "McNemar's p", "only this right"]
    put_table(
        [*heads, "only best right"],
        [
            [one.model, short_count(one.parameters), share(one.accuracy), *_tests(one)]
            for one in records
        ],
    )


def _tests(one: LabelComparison) -> list[str]:
    """Return the columns that compare a model with the best one."""
    if one.p_value is None:
        return ["best", *[MISSING] * 4]
    tested = one.mcnemar
    exact = [MISSING] * 3
    if tested is not None:
        exact = [figure(tested["p_value"]), count(tested["only_this"]), count(tested["only_best"])]
    return [share(one.difference), figure(one.p_value), *exact]
