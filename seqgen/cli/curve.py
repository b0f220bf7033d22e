"""A loss curve in characters, for a terminal or a log, drawn by plotext."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

from seqgen.cli.output import console, is_terminal
from seqgen.cli.tables import count

Point = tuple[float, float]
# Columns: off a terminal, and the least and the most on one.
USUAL, NARROWEST, WIDEST = 72, 24, 100


def curve(
    series: Sequence[tuple[str, Sequence[Point]]],
    width: int | None = None,
    height: int = 14,
    ticks: Mapping[float, str] | None = None,
) -> list[str]:
    """Draw several series of points into one picture, later ones over earlier ones.

    Args:
        series: for each, the character that marks it, and its points (x, y).
        width: columns of the whole picture; those of the terminal that it is for if None.
        height: lines of it.
        ticks: places on the horizontal axis and their labels; five whole numbers if None.

    Returns:
        The lines, without colour; none without a finite point.
    """
    finite = [
        (mark, [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)])
        for mark, points in series
    ]
    if not any(points for _, points in finite):
        return []
    import plotext

    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.plot_size(_width() if width is None else width, height)
    plotext.theme("clear")
    for mark, points in finite:
        if points:
            plotext.scatter(*zip(*points, strict=True), marker=mark)
    ticks = ticks or _five_steps([x for _, points in finite for x, _ in points])
    plotext.xticks(list(ticks), list(ticks.values()))
    picture = plotext.uncolorize(plotext.build())
    return [line.rstrip() for line in picture.rstrip("\n").splitlines()]


def _width() -> int:
    """Return how wide a picture on standard output is."""
    if not is_terminal(sys.stdout):
        return USUAL
    return max(NARROWEST, min(WIDEST, console(sys.stdout).width))


def _five_steps(steps: Sequence[float]) -> dict[float, str]:
    """Return five whole numbers from the first step to the last, and what they are called."""
    low, high = min(steps), max(steps)
    ticks = sorted({round(low + (high - low) * part / 4) for part in range(5)})
    return {tick: count(tick) for tick in ticks}
