"""A picture of attention, drawn by matplotlib, which is an extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seqgen.report.pictures import save_picture

# Inches of a cell, and of a character beside it.
CELL, CHARACTER = 0.28, 0.09
# Pictures are no larger than this, in inches: cells of long texts get smaller.
MOST_INCHES = 60.0


def draw_heat_map(
    path: Path, weights: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str
) -> None:
    """Draw weights as a grid of shades, the darker the larger.

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
