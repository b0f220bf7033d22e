"""A picture of lines, drawn by matplotlib, which is an extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from seqgen.report.pictures import save_picture

# More lines than this have their names beside the picture; as many colours there are, after which
# lines are dashed, then dotted.
NAMES_INSIDE, COLOURS = 8, 10
STYLES = "-", "--", ":", "-."


def draw_lines(
    path: Path,
    series: Mapping[str, Sequence[tuple[float, float]]],
    x: str,
    y: str,
    log: str = "x",
    marker: str = "o",
    title: str = "",
) -> None:
    """Draw a line for each series, in the order of its points.

    Args:
        path: an .svg or .png file.
        series: by name, its points.
        x: what the horizontal axis shows.
        y: what the vertical one shows.
        log: the axes that are logarithmic: "x", "y", "xy" or none.
        marker: stands at every point; "" for none.
        title: stands above.
    """
    from matplotlib.figure import Figure

    many = len(series) > NAMES_INSIDE
    figure = Figure(figsize=(11, 6) if many else (7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, points) in enumerate(series.items()):
        style = STYLES[number // COLOURS % len(STYLES)]
        columns = zip(*points, strict=True) if points else ((), ())
        axes.plot(*columns, style, marker=marker, label=name)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log", nonpositive="mask")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize="medium", parse_math=False)  # a dollar is a dollar
    axes.grid(alpha=0.3)
    if many:
        figure.legend(loc="outside right upper", fontsize="small")
    else:
        axes.legend()
    save_picture(path, figure)
