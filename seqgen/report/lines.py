"""A picture of lines over a logarithmic axis, drawn by matplotlib, which is an extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from seqgen.report.heat_map import save_picture


def draw_lines(
    path: Path, series: Mapping[str, Sequence[tuple[float, float]]], x: str, y: str
) -> None:
    """Draw a line for each series, in the order of its points.

    Args:
        path: an .svg or .png file.
        series: by name, its points.
        x: what the horizontal axis shows, on a logarithmic scale.
        y: what the vertical one shows.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for name, points in series.items():
        axes.plot(*zip(*points, strict=True) if points else ((), ()), marker="o", label=name)
    axes.set_xscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.legend()
    save_picture(path, figure)
