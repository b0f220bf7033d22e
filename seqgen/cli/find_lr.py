"""`seqgen train --find-lr`: the losses at rising learning rates, and a suggestion."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen.cli.curve import curve
from seqgen.cli.inputs import Input
from seqgen.cli.output import put, put_record
from seqgen.cli.outputs import check_picture
from seqgen.cli.tables import number

if TYPE_CHECKING:
    from seqgen.training.events import Report
    from seqgen.training.rate_finder import FoundRate, RampPoint


def put_rate(
    data: Sequence[str | Path],
    asked: Mapping[str, Any],
    inputs: Sequence[Input],
    plot: Path | None,
    report: Report,
    json: bool,
) -> None:
    """Find a learning rate and write it.

    Args:
        data: what would be trained on.
        asked: what else `train` would be given, by name.
        inputs: the files that are read, which no picture replaces.
        plot: where a picture goes.
        report: takes events of preparing.
        json: write records.
    """
    from seqgen.commands.training.find_rate import find_rate

    unit = "nats/label" if asked.get("task") else "nats/token"
    place = None if plot is None else check_picture(plot, inputs)
    points, best_rate = find_rate(
        data, **asked, report=report, put=put_record if json else _nothing
    )
    if place is not None:
        _draw(place, points, unit)
    if json:
        put_record(best_rate)
    else:
        _put(points, best_rate, unit)


def _nothing(point: RampPoint) -> None:
    """Leave a point for the picture."""


def _put(points: Sequence[RampPoint], best_rate: FoundRate, unit: str) -> None:
    # What lies far above the lowest loss would flatten the picture.
    highest = 1.2 * points[0].smoothed
    series = [
        (mark, [(math.log10(p.lr), min(highest, y(p))) for p in points])
        for mark, y in ((".", lambda p: p.loss), ("o", lambda p: p.smoothed))
    ]
    low, high = (math.log10(p.lr) for p in (points[0], points[-1]))
    ticks = {x: f"1e{x}" for x in range(math.ceil(low), math.floor(high) + 1)}
    lines = curve(series, ticks=ticks)
    put("\n".join([f"{unit} by learning rate: . of a step, o smoothed", *lines, "", ""]))
    put(
        f"lowest at {number(best_rate.lowest_loss_lr)}, falling fastest at "
        f"{number(best_rate.steepest_lr)}; try --lr {number(best_rate.suggested_lr)}\n"
    )


def _draw(place: Path, points: Sequence[RampPoint], unit: str) -> None:
    from seqgen.report.pictures import draw_lines

    series = {
        "loss of a step": [(p.lr, p.loss) for p in points],
        "smoothed": [(p.lr, p.smoothed) for p in points],
    }
    draw_lines(place, series, "learning rate", unit, marker="")
