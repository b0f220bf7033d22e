"""Pictures drawn with matplotlib, an optional dependency: line plots and heat maps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqgen import __version__
from seqgen.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# How the name of the program begins that a picture says it was drawn by; nothing else is replaced.
MARK = "seqgen "


def is_picture(path: Path) -> bool:
    """Check by its metadata whether a file is a picture that seqgen drew."""
    with path.open("rb") as file:
        head = file.read(2048)
    png, svg = b"tEXtSoftware\0" + MARK.encode(), f"<dc:title>{MARK}".encode()
    return png in head if head.startswith(b"\x89PNG") else b"<svg" in head and svg in head


def save_picture(path: Path, figure: Figure) -> None:
    """Save a matplotlib figure as .svg or .png."""
    from matplotlib import __version__ as matplotlib_version
    from matplotlib import rc_context

    # Texts stay texts in an SVG, and the same figure gives the same file.
    settings = {"svg.fonttype": "none", "svg.hashsalt": "seqgen"}
    program = f"{MARK}{__version__}, with Matplotlib {matplotlib_version}"
    if path.suffix.lower() == ".svg":
        options = {"metadata": {"Date": None, "Creator": program}}
    else:
        options = {"metadata": {"Software": program}, "dpi": 120}
    with rc_context(settings), warnings.catch_warnings(), replacing(path) as file:
        warnings.simplefilter("ignore")  # about characters that no font has
        figure.savefig(file, format=path.suffix[1:].lower(), **options)


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
    """Plot one line per series and save the picture.

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


# Inches of a cell, and of a character beside it.
CELL, CHARACTER = 0.28, 0.09
# Pictures are no larger than this, in inches: cells of long texts get smaller.
MOST_INCHES = 60.0


def draw_heat_map(
    path: Path, weights: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str
) -> None:
    """Draw a matrix of weights as a heat map and save the picture.

    Args:
        path: an .svg or .png file.
        weights: (T, L), from 0 to 1.
        rows: T labels.
        columns: L labels.
        title: stands above.
    """
    from matplotlib.figure import Figure

    left, top = (1 + CHARACTER * max(map(len, side), default=0) for side in (rows, columns))
    width = min(MOST_INCHES, left + CELL * max(1, len(columns)) + 0.3)
    height = min(MOST_INCHES, top + CELL * max(1, len(rows)) + 0.3)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    if weights.size:
        image = axes.imshow(weights, cmap="Blues", vmin=0, interpolation="none", aspect="auto")
        figure.colorbar(image, ax=axes, shrink=0.8)
    plain = {"parse_math": False}  # a dollar is a dollar
    axes.set_xticks(range(len(columns)), columns, rotation=90, **plain)
    axes.set_yticks(range(len(rows)), rows, **plain)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_title(title, fontsize="medium", **plain)
    save_picture(path, figure)
