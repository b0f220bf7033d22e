"""A loss curve in characters, for a terminal or a log."""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = tuple[float, float]


def curve(
    series: Sequence[tuple[str, Sequence[Point]]], width: int = 64, height: int = 12
) -> list[str]:
    """Draw several series of points into one picture, later ones over earlier ones.

    Args:
        series: for each, the character that marks it, and its points (x, y).
        width: columns of the picture itself; the labels of the y axis stand to its left.
        height: lines.

    Returns:
        The lines: the picture with the axes, the largest y on top; none without a finite point.
    """
    finite = [
        (mark, [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)])
        for mark, points in series
    ]
    every = [point for _, points in finite for point in points]
    if not every:
        return []
    left, right = min(x for x, _ in every), max(x for x, _ in every)
    low, high = min(y for _, y in every), max(y for _, y in every)
    cells = [[" "] * width for _ in range(height)]
    for mark, points in finite:
        for x, y in points:
            column = _place(x, left, right, width)
            cells[height - 1 - _place(y, low, high, height)][column] = mark
    labels = {0: f"{high:.3f}", height - 1: f"{low:.3f}"}
    margin = max(map(len, labels.values()))
    lines = [
        f"{labels.get(i, ''):>{margin}} |{''.join(row).rstrip()}" for i, row in enumerate(cells)
    ]
    begin, end = f"{left:g}", f"{right:g}"
    axis = " " * (margin + 2) + begin + " " * (width - len(begin) - len(end)) + end
    return [*lines, " " * margin + " +" + "-" * width, axis]


def _place(value: float, low: float, high: float, cells: int) -> int:
    """Return which of so many equal cells from `low` to `high` a value falls into."""
    if high == low:
        return 0
    return min(cells - 1, int((value - low) / (high - low) * cells))
