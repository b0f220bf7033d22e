"""Line charts and search trees as inline SVG, with values on hover and by arrow keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

from seqgen.cli.shell.page import figure
from seqgen.generation.beam_search import Node, Tree
from seqgen.wording import replace_unprintable

T = TypeVar("T")
Point = tuple[float, float]
# Pixels of the whole, and around the axes.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 330, 72, 30, 44, 48
# A longer series is thinned out; of one with marks, so many points can be pointed at.
MOST_POINTS, MOST_MARKS = 400, 60


@dataclass(frozen=True)
class Series:
    """Line of a chart.

    Attributes:
        name: what it shows.
        points: x and y; those that are not finite are left out.
        marks: its points stand out.
    """

    name: str
    points: Sequence[Point]
    marks: bool = False

    @property
    def finite(self) -> list[Point]:
        """Points with finite coordinates."""
        return [(x, y) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]


class Axis:
    """Linear axis that maps values to pixels.

    Args:
        values: that are to fit.
        start: the pixel of the lowest.
        end: that of the highest.
    """

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = min(values), max(values)
        if high <= low:
            low, high = low - 0.5, high + 0.5
        self.ticks = ticks(low, high)
        self.low, self.high = min(low, self.ticks[0]), max(high, self.ticks[-1])
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        """Map a value to its pixel."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Choose about `count` round tick values around a range: multiples of 1, 2 or 5 times 10^n."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= raw * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [n * step for n in range(first, last + 1)]


def chart(series: Sequence[Series], x: str, y: str, caption: str, diagonal: bool = False) -> str:
    """Draw a chart as HTML; a sentence if there is nothing to draw.

    Args:
        series: its lines.
        x: what the horizontal axis shows.
        y: what the vertical one shows.
        caption: what the chart shows.
        diagonal: draw where y equals x.
    """
    drawn = [each for each in series if each.finite]
    if not drawn:
        return f"<p>{escape(caption)}: nothing was logged.</p>"
    every = [point for each in drawn for point in each.finite]
    across = Axis([p[0] for p in every], LEFT, WIDTH - RIGHT)
    up = Axis([p[1] for p in every], HEIGHT - BOTTOM, TOP)
    body = _grid(across, up, x, y)
    if diagonal:
        low, high = max(across.low, up.low), min(across.high, up.high)
        ends = f"{across(low):.1f},{up(low):.1f} {across(high):.1f},{up(high):.1f}"
        body += f'<polyline class="axis" stroke-dasharray="4" points="{ends}"/>'
    for number, each in enumerate(drawn):
        body += _line(each, f"var(--c{number % 6})", across, up, x)
    keys = "".join(
        f'<span class="one"><span class="key" style="background:var(--c{n % 6})"></span>'
        f"{escape(each.name)}</span>"
        for n, each in enumerate(drawn)
    )
    label = f"{caption}: {summary(drawn, x)}. Arrow keys move from point to point."
    picture = f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    picture += f' aria-label="{escape(label)}">{body}</svg>'
    return figure(f"{escape(caption)} {keys}", label, picture)


def summary(series: Sequence[Series], x: str) -> str:
    """Describe in words where each line begins, ends and is lowest."""
    parts = []
    for each in series:
        points = each.finite
        low = min(points, key=lambda p: p[1])
        parts.append(
            f"{each.name} from {points[0][1]:.4g} to {points[-1][1]:.4g}, "
            f"least {low[1]:.4g} at {x} {low[0]:.4g}"
        )
    return "; ".join(parts)


def thinned(points: Sequence[T], most: int) -> list[T]:
    """Select at most `most` points at even distances, including the first and last."""
    if len(points) <= most:
        return list(points)
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]


def _grid(across: Axis, up: Axis, x: str, y: str) -> str:
    lines = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(t):.1f}" y2="{up(t):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{up(t) + 4:.1f}" text-anchor="end">{t:.4g}</text>'
        for t in up.ticks
    )
    lines += "".join(
        f'<text x="{across(t):.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{t:.5g}</text>'
        for t in across.ticks
    )
    return (
        f'{lines}<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x)}</text>'
        f'<text x="4" y="{TOP - 22}">{escape(y)}</text>'
    )


def _line(series: Series, colour: str, across: Axis, up: Axis, x: str) -> str:
    points = thinned(series.finite, MOST_POINTS)
    ends = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in points)
    body = f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{ends}"/>'
    for a, b in thinned(series.finite, MOST_MARKS):
        about = escape(f"{series.name}: {b:.4g} at {x} {a:.6g}")
        body += (
            f'<circle class="v" cx="{across(a):.1f}" cy="{up(b):.1f}" '
            f'r="{3.5 if series.marks else 2}" fill="{colour}" data-t="{about}">'
            f"<title>{about}</title></circle>"
        )
    return body


# Pixels from a token to the next, from a line to the next, and around all.
ACROSS, DOWN, MARGIN = 96, 22, 16
COLOURS = {"live": "var(--ink)", "finished": "var(--c2)", "pruned": "var(--faint)"}
# A longer token is cut.
LONGEST = 11


def search_tree(tree: Tree) -> str:
    """Draw a beam-search tree as HTML: a column per step, a row per leaf."""
    children: dict[int, list[Node]] = {}
    for node in tree.nodes:
        children.setdefault(node.parent, []).append(node)
    lines = _lines(children)
    depth = max((node.step for node in tree.nodes), default=0) + 1
    width, height = MARGIN * 2 + ACROSS * (depth + 1), MARGIN * 2 + DOWN * max(lines.values())
    body = f'<text x="{MARGIN}" y="{_y(lines[0]) + 4:.0f}">{escape(_short(tree.prompt))}</text>'
    body += "".join(_node(node, lines) for node in tree.nodes)
    best = tree.hypotheses[0] if tree.hypotheses else None
    outcome = f"; the best is {best.text!r}, with {best.logprob:.3f} nats" if best else ""
    label = f"Beam search from {tree.prompt!r}{outcome}. Arrow keys move through the candidates."
    caption = f"{escape(label)} Finished ones are green, pruned ones grey."
    return figure(caption, label, drawing(width, height, label, body), "walk wide")


def drawing(width: float, height: float, label: str, body: str) -> str:
    """Wrap an SVG body in an element of full size, with a label for screen readers."""
    return (
        f'<svg style="max-width:none" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(label)}">{body}</svg>'
    )


def _lines(children: dict[int, list[Node]]) -> dict[int, float]:
    """Assign a row to each node; a parent is centred on its children."""
    lines: dict[int, float] = {}
    taken = 0
    waiting = [(0, False)]
    while waiting:
        number, done = waiting.pop()
        below = children.get(number, [])
        if not below:
            lines[number] = taken = taken + 1
        elif done:
            lines[number] = (lines[below[0].node] + lines[below[-1].node]) / 2
        else:
            waiting.append((number, True))
            waiting += [(node.node, False) for node in reversed(below)]
    return lines


def _y(line: float) -> float:
    return MARGIN + DOWN * (line - 0.5)


def _node(node: Node, lines: dict[int, float]) -> str:
    x, y = MARGIN + ACROSS * (node.step + 1), _y(lines[node.node])
    above, colour = _y(lines[node.parent]), COLOURS[node.fate]
    rank = "" if node.rank is None else f", rank {node.rank + 1}"
    about = escape(
        f"{node.text!r}: {node.logprob:.3f} nats, {node.total:.3f} in all, {node.fate}{rank}"
    )
    weight = ' font-weight="bold"' if node.fate == "finished" else ""
    text = escape(_short(node.text))
    return (
        f'<path d="M{x - 34:.0f} {above:.1f}L{x - 14:.0f} {y:.1f}" stroke="{colour}" '
        f'fill="none"/><circle class="v" data-t="{about}" cx="{x - 8:.0f}" cy="{y:.1f}" r="4" '
        f'fill="{colour}"><title>{about}</title></circle>'
        f'<text x="{x:.0f}" y="{y + 4:.1f}" fill="{colour}"{weight}>{text}</text>'
    )


def _short(text: str) -> str:
    shown = text.replace("\n", "↵").replace(" ", "␣")
    shown = replace_unprintable(shown)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
