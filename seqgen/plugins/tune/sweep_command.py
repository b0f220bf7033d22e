"""`seqgen sweep`: train and compare architectures at equal parameter counts."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING

from seqgen.cli.shell.flags import assignment, takes_options
from seqgen.cli.shell.inputs import Inputs, given_or_piped
from seqgen.cli.shell.model_options import Device
from seqgen.cli.shell.output import Output, RecordedOutput, put
from seqgen.cli.shell.output_files import Curves, check_picture
from seqgen.cli.shell.tables import MISSING, count, curve, figure, put_table, short_count
from seqgen.cli.shell.train_options import MoreSettings, TrainingFiles
from seqgen.plugins.tune.jobs import check_files, put_jobs, rewrite_command
from seqgen.settings import (
    REQUIRED,
    DataConfig,
    Options,
    Panel,
    group,
    ranges,
    redeclare,
    require,
    setting,
    settings_group,
)
from seqgen.settings.training import BUDGETS, TrainingConfig

if TYPE_CHECKING:
    from seqgen.plugins.tune.sweep import Sweep, SweepCell, SweepRecord

BudgetFlags = settings_group(
    TrainingConfig, DataConfig, only=(*BUDGETS, "precision", "documents", "as_text")
)


class Swept(Options, panel=Panel.WHAT):
    """Architectures, sizes and text of a sweep, and the place for its plot."""

    data: tuple[str, ...] = redeclare(TrainingFiles, "data")
    models: tuple[str, ...] = setting(
        "Architectures to train, such as rnn,gru,lstm.",
        REQUIRED,
        listed=True,
        metavar="ARCH,...",
        completes="architectures",
    )
    parameters: tuple[int, ...] = setting(
        "Numbers of parameters to train each of them with, such as 3e4,100k,1.5M.",
        REQUIRED,
        reads="count",
        listed=True,
        metavar="N,...",
    )
    seeds: tuple[int, ...] = setting(
        "Train from each of these seeds, to see how far the results differ.",
        (1,),
        ranges.SEEDS,
        listed=True,
        metavar="N,...",
    )
    budget: BudgetFlags = group(BudgetFlags)
    set_: tuple[str, ...] = redeclare(MoreSettings, "set_")
    print_jobs: bool = setting(
        "Print a command for each model instead, to run as jobs of a cluster.",
        panel=Panel.OUTPUT,
        conflicts="--plot",
    )

    def read(self, files: Sequence[str | Path], device: str) -> Sweep:
        """Build the sweep over files on a device.

        Raises:
            UsageError: a list is empty, or has something wrong in it.
        """
        from seqgen.plugins.tune.sweep import Sweep

        settings = {key: value for key, value in self.budget.to_dict().items() if value is not None}
        if settings.get("precision") == "auto":
            del settings["precision"]
        settings |= dict(map(assignment, self.set_))
        fixed = next((name for name in ("seed", "hidden_size") if name in settings), None)
        require(fixed is None, f"--set {fixed} has no meaning: a sweep chooses it")
        return Sweep(
            data=files,
            architectures=list(dict.fromkeys(self.models)),
            parameters=list(dict.fromkeys(self.parameters)),
            seeds=list(dict.fromkeys(self.seeds)),
            settings=settings,
            device=device,
        )


@takes_options
def sweep(swept: Swept, curves: Curves, machine: Device, out: RecordedOutput) -> None:
    """Train architectures at equal numbers of parameters, and compare the results.

    Every model is kept: a sweep that is interrupted continues with the same command, and one that
    is larger trains what is missing.
    """
    inputs = Inputs(out.quiet)
    names = given_or_piped(swept.data, "seqgen sweep DATA")
    if swept.print_jobs:
        check_files(names)
    data = inputs.keep(names)
    asked = swept.read(data, machine.device)
    if swept.print_jobs:
        put_jobs(map(_job, asked.cells), rewrite_command({}), out)
        return
    place = curves.plot and check_picture(curves.plot, inputs.open(map(str, data)))
    records = []
    for record in _trained(asked, out):
        records.append(record)
        out.record(record)
    if not out.json:
        put_sizes(records)
        for line in picture(records):
            put(f"{line}\n")
    if place is not None:
        from seqgen.cli.shell.pictures import draw_lines

        draw_lines(place, series(records), "parameters", "bits/char")


def _job(cell: SweepCell) -> str:
    """Write the command that trains one model of the sweep."""
    own = {
        "--models": cell.architecture,
        "--parameters": str(cell.target_parameters),
        "--seeds": str(cell.seed),
    }
    return rewrite_command(own)


def _trained(asked: Sweep, out: Output) -> Iterable[SweepRecord]:
    """Train each model of a sweep that is not finished; yield all records."""
    from seqgen.cli.shell.progress import display

    cells = asked.cells
    for number, cell in enumerate(cells, start=1):
        record = asked.finished(cell)
        state = "trained before" if record else f"hidden_size {count(cell.hidden_size)}"
        out.notice(f"{number} of {len(cells)}: {cell.name}, {state}")
        if record is None:
            with display(out) as report:
                record = asked.train(cell, report)
        if record.error:
            out.notice(f"{cell.name} failed: {record.error}")
        yield record


def _by_size(records: Sequence[SweepRecord]) -> dict[str, dict[int, list[SweepRecord]]]:
    """Group records by architecture, then by requested size."""
    table: dict[str, dict[int, list[SweepRecord]]] = {}
    for one in records:
        table.setdefault(one.architecture, {}).setdefault(one.target_parameters, []).append(one)
    return table


def _bits(records: Iterable[SweepRecord]) -> list[float]:
    """List the bits per character of successful runs."""
    return [one.val_bits_per_char for one in records if one.val_bits_per_char is not None]


def put_sizes(records: Sequence[SweepRecord]) -> None:
    """Print bits per character by architecture and size: means over the seeds, and ranges.

    A range is the largest less the smallest. That over the seeds is the mean of all architectures.
    """
    table = _by_size(records)
    sizes = sorted({one.target_parameters for one in records})
    rows = [[name, *(_cell(of[size]) for size in sizes)] for name, of in table.items()]
    columns = [[_bits(of[size]) for of in table.values()] for size in sizes]
    if len(table) > 1:
        means = [[statistics.fmean(bits) for bits in column if bits] for column in columns]
        rows.append(["range over architectures", *map(_range, means)])
    if len({one.seed for one in records}) > 1:
        ranges = [[max(bits) - min(bits) for bits in column if bits] for column in columns]
        means = [figure(statistics.fmean(of)) if of else MISSING for of in ranges]
        rows.append(["range over seeds", *means])
    put_table(["bits/char", *map(short_count, sizes)], rows)


def _cell(records: Sequence[SweepRecord]) -> str:
    bits = _bits(records)
    return figure(statistics.fmean(bits)) if len(bits) == len(records) else "failed"


def _range(bits: Sequence[float]) -> str:
    return figure(max(bits) - min(bits)) if bits else MISSING


def series(records: Sequence[SweepRecord]) -> dict[str, list[tuple[float, float]]]:
    """Compute each architecture's curve: parameters and mean bits per character."""
    points: dict[str, list[tuple[float, float]]] = {}
    for name, of in _by_size(records).items():
        points[name] = [
            (statistics.fmean(one.parameters for one in runs), statistics.fmean(_bits(runs)))
            for _, runs in sorted(of.items())
            if len(_bits(runs)) == len(runs)
        ]
    return points


def picture(records: Sequence[SweepRecord]) -> list[str]:
    """Draw bits per character over the logarithm of parameters as lines of text."""
    marks = dict(zip(series(records), "abcdefghijklmnopqrstuvwxyz", strict=False))
    drawn = [
        (marks[name], [(log10(x), y) for x, y in points])
        for name, points in series(records).items()
        if name in marks
    ]
    sizes = {log10(size): short_count(size) for size in {one.target_parameters for one in records}}
    lines = curve(drawn, ticks=sizes)
    title = "bits/char by parameters: " + ", ".join(f"{m} {name}" for name, m in marks.items())
    return [title, *lines] if lines else []
