"""A loss curve in characters, for a terminal or a log, drawn by plotext."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seqgen.cli.tables import count

Point = tuple[float, float]


def curve(
    series: Sequence[tuple[str, Sequence[Point]]], width: int = 72, height: int = 14
) -> list[str]:
    """Draw several series of points into one picture, later ones over earlier ones.

    Args:
        series: for each, the character that marks it, and its points (x, y).
        width: columns of the whole picture.
        height: lines of it.

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
    plotext.plot_size(width, height)
    plotext.theme("clear")
    for mark, points in finite:
        if points:
            plotext.scatter(*zip(*points, strict=True), marker=mark)
    steps = [x for _, points in finite for x, _ in points]
    low, high = min(steps), max(steps)
    ticks = sorted({round(low + (high - low) * part / 4) for part in range(5)})
    plotext.xticks(ticks, [count(tick) for tick in ticks])
    picture = plotext.uncolorize(plotext.build())
    return [line.rstrip() for line in picture.rstrip("\n").splitlines()]
