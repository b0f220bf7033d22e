"""Pictures drawn by matplotlib, which is an extra: what all have in common, and plain lines."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seqgen.errors import SeqgenError, UsageError
from seqgen.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = (".svg", ".png")


def check_plot(path: Path) -> None:
    """Refuse a picture that cannot be drawn, before the work begins.

    Raises:
        UsageError: the name has another ending.
        SeqgenError: matplotlib is not installed; says how to install it.
    """
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"--plot writes {' or '.join(KINDS)} files: give {path} such a name")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SeqgenError(
            "--plot needs the package matplotlib: pip install 'seqgen[plot]'"
        ) from None


def is_picture(path: Path) -> bool:
    """Return whether a file begins as one of these pictures does."""
    with path.open("rb") as file:
        head = file.read(512)
    return head.startswith(b"\x89PNG") or b"<svg" in head or b"DOCTYPE svg" in head


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure into an .svg or .png file."""
    from matplotlib import rc_context

    # Texts stay texts in an SVG, and the same figure gives the same file.
    settings = {"svg.fonttype": "none", "svg.hashsalt": "seqgen"}
    how = {"metadata": {"Date": None}} if path.suffix.lower() == ".svg" else {"dpi": 120}
    with rc_context(settings), warnings.catch_warnings(), replacing(path) as file:
        warnings.simplefilter("ignore")  # about characters that no font has
        figure.savefig(file, format=path.suffix[1:].lower(), **how)


@dataclass(frozen=True)
class Series:
    """A line of a picture: its name in the legend, and its points (x, y)."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def draw_lines(
    path: Path,
    series: Sequence[Series],
    title: str,
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = False,
) -> None:
    """Draw lines into an .svg or .png file.

    Args:
        path: the file.
        series: the lines.
        title: stands above.
        x: what the horizontal axis shows.
        y: what the vertical axis shows.
        log_x: the horizontal axis is logarithmic.
        log_y: the vertical axis is logarithmic.
    """
    from matplotlib.figure import Figure

    plain = {"parse_math": False}  # a dollar is a dollar
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for line in series:
        style = "--" if line.dashed else "-"
        axes.plot(*zip(*line.points, strict=True), style, label=line.name, linewidth=1.2)
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log", nonpositive="mask")
    axes.set_xlabel(x, **plain)
    axes.set_ylabel(y, **plain)
    axes.set_title(title, fontsize="medium", **plain)
    if len(series) > 1:
        axes.legend(fontsize="small")
    save_picture(figure, path)
