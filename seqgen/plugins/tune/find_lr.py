"""`seqgen find-lr`: losses at increasing learning rates, and a suggested rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqgen import ranks
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import given_or_piped
from seqgen.cli.shell.output import Output, put
from seqgen.cli.shell.output_files import Curves, check_picture
from seqgen.cli.shell.tables import curve, number
from seqgen.cli.shell.train_options import Recipe, SeededDevice, TrainingFiles, check_no_model_name
from seqgen.errors import UsageError

if TYPE_CHECKING:
    from seqgen.plugins.tune.rate_finder import FoundRate, RampPoint


@takes_options
def find_lr(
    recipe: Recipe, files: TrainingFiles, curves: Curves, machine: SeededDevice, out: Output
) -> None:
    """Find a learning rate for a model and its text; nothing is stored.

    The model that `seqgen train` would train with the same flags takes 100 steps with a learning
    rate that rises. The losses are drawn, and a value for --lr is suggested. Compare it with the
    default before you use it.
    """
    if recipe.put_help(out):
        return
    from seqgen.cli.shell.progress import display
    from seqgen.plugins.tune.rate_finder import find_rate_for

    data = files.named()
    settings = recipe.settings(machine)
    if ranks.is_launched():
        raise UsageError("find-lr needs one process: run it without torchrun")
    inputs = files.inputs(recipe.given_settings, out)
    settings |= files.held_out(recipe.given_settings, inputs)
    check_no_model_name(data)
    sources = inputs.keep(given_or_piped(data, "seqgen find-lr FILE"))
    unit = "nats/label" if recipe.kind.task else "nats/token"
    place = None if curves.plot is None else check_picture(curves.plot, inputs.open(data))
    with display(out) as report:
        points, best_rate = find_rate_for(
            sources,
            targets=files.targets(inputs, data),
            settings=settings,
            device=machine.device,
            report=report,
            put=out.record,
            **recipe.asked,
        )
    if place is not None:
        _draw(place, points, unit)
    if not out.record(best_rate):
        _put(points, best_rate, unit)


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
    from seqgen.cli.shell.pictures import draw_lines

    series = {
        "loss of a step": [(p.lr, p.loss) for p in points],
        "smoothed": [(p.lr, p.smoothed) for p in points],
    }
    draw_lines(place, series, "learning rate", unit, marker="")
