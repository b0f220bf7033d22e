"""Plot of words in two dimensions, drawn by matplotlib."""

from __future__ import annotations

import itertools
import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqgen.cli.shell.pictures import save_picture

# Points (1/72 inch): of the plane without labels, of a label's line, of a character, around all.
SIDE, LINE, WORD_CHARACTER, MARGIN = 480.0, 11.0, 5.6, 9.0
POINT, FONT, TITLE_FONT = 2.0, 8.5, 9.0
# Labels are tried at these directions around their point, on rings so far apart; beyond the first
# ring a line joins both.
DIRECTIONS, RING = 16, 7.0
BLUE, GREY = "#1f4e9c", "#999999"


@dataclass(frozen=True)
class Box:
    """A rectangle: upper left corner, width and height."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: Box) -> bool:
        """Check whether two rectangles overlap."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )


def principal_components(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project vectors (N, D) onto their first two principal components.

    The largest number of each is positive, so that the same vectors give the same picture.

    Returns:
        (N, 2), and the shares of the variance that both have.
    """
    centred = (vectors - vectors.mean(0)).astype(np.float64)
    u, scales, _ = np.linalg.svd(centred, full_matrices=False)
    coordinates = np.zeros((len(vectors), 2))
    there = min(2, len(scales))
    coordinates[:, :there] = u[:, :there] * scales[:there]
    largest = np.take_along_axis(coordinates, np.abs(coordinates).argmax(0)[None], 0)  # (1, 2)
    variances = np.zeros(2)
    variances[:there] = scales[:there] ** 2 / max(float((scales**2).sum()), 1e-30)
    return coordinates * np.where(largest < 0, -1.0, 1.0), variances


def width_of(text: str) -> float:
    """Estimate the width of a label in points; East Asian characters count twice."""
    return WORD_CHARACTER * sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def place_labels(points: Sequence[tuple[float, float]], labels: Sequence[str]) -> list[Box]:
    """Place each label near its point, without overlapping other labels or points.

    Args:
        points: x and y, in 1/72 inch.
        labels: as many texts.
    """
    taken = [Box(x - POINT, y - POINT, 2 * POINT, 2 * POINT) for x, y in points]
    boxes: list[Box] = []
    for (x, y), text in zip(points, labels, strict=True):
        places = _places_around(x, y, width_of(text))
        box = next(b for b in places if not any(b.overlaps(other) for other in taken))
        taken.append(box)
        boxes.append(box)
    return boxes


def _places_around(x: float, y: float, width: float) -> Iterator[Box]:
    """Yield candidate boxes around a point, nearest first, without end."""
    for ring in itertools.count(1):
        for number in range(DIRECTIONS):
            angle = 2 * math.pi * number / DIRECTIONS
            across, down = math.cos(angle), math.sin(angle)
            # The box touches its place on the ring with the side that faces the point.
            left = x + ring * RING * across - width * (1 - across) / 2
            top = y + ring * RING * down - LINE * (1 - down) / 2
            yield Box(left, top, width, LINE)


def draw_words(path: Path, words: Sequence[str], vectors: np.ndarray, title: str) -> None:
    """Plot words at the first two principal components of their vectors.

    Args:
        path: an .svg or .png file.
        words: N labels.
        vectors: (N, D).
        title: stands above.
    """
    from matplotlib.figure import Figure

    coordinates, variances = principal_components(vectors)
    spread = max(float(np.abs(coordinates).max(initial=0.0)), 1e-30)
    points = [(x * SIDE / 2, y * SIDE / 2) for x, y in (coordinates / spread * (1, -1)).tolist()]
    boxes = place_labels(points, words)
    title = f"{title}; {variances[0]:.0%} and {variances[1]:.0%} of the variance"
    left, top, width, height = _frame(points, boxes, title)
    figure = Figure(figsize=(width / 72, height / 72))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(left, left + width), ylim=(top + height, top))
    axes.set_axis_off()
    plain = {"parse_math": False, "verticalalignment": "center"}  # a dollar is a dollar
    axes.text(left + MARGIN, top + MARGIN + LINE / 2, title, fontsize=TITLE_FONT, **plain)
    axes.scatter(*zip(*points, strict=True), s=(2 * POINT) ** 2, color=BLUE, linewidths=0)
    for (x, y), box, word in zip(points, boxes, words, strict=True):
        near_x = min(max(x, box.x), box.x + box.width)
        near_y = min(max(y, box.y), box.y + box.height)
        if math.hypot(near_x - x, near_y - y) > 1.5 * RING:
            axes.plot((x, near_x), (y, near_y), color=GREY, linewidth=0.5, zorder=0)
        axes.text(box.x, box.y + box.height / 2, word, fontsize=FONT, **plain)
    save_picture(path, figure)


def _frame(
    points: Sequence[tuple[float, float]], boxes: Sequence[Box], title: str
) -> tuple[float, float, float, float]:
    """Compute the left and top edges, the width and the height that enclose points and labels."""
    left = min([x for x, _ in points] + [box.x for box in boxes]) - MARGIN
    right = max([x for x, _ in points] + [box.x + box.width for box in boxes]) + MARGIN
    top = min([y for _, y in points] + [box.y for box in boxes]) - MARGIN - 2 * LINE
    bottom = max([y for _, y in points] + [box.y + box.height for box in boxes]) + MARGIN
    right = max(right, left + width_of(title) + 2 * MARGIN)
    return left, top, right - left, bottom - top
