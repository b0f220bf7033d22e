"""Pictures of the companion, drawn as small SVG files from what its commands printed.

`docs/companion.py` calls `draw` for every step and writes the files to `docs/companion/`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLOURS = ("#3f51b5", "#c62828", "#2e7d32")
INK = "#222"
# Every colour of the pictures, and its counterpart in dark mode.
DARK = {
    "#fff": "#1e1e23",
    INK: "#ececf1",
    "#3f51b5": "#9fa8da",
    "#c62828": "#ef8578",
    "#2e7d32": "#81c784",
    "#767676": "#a9a9b6",
    "#999": "#84848f",
    "#bbb": "#5f5f6b",
    "#ddd": "#4a4a55",
}
Points = Sequence[tuple[float, float]]


def draw(number: str, outputs: Sequence[str]) -> tuple[str, str] | None:
    """Return the alternative text and the SVG of a step, or None if it has no picture."""
    return PICTURES[number](outputs) if number in PICTURES else None


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    """Return a picture with colours for light and dark mode."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
    style = f'width="{width:g}" font-family="sans-serif" font-size="12"'
    background = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([f"{head} {style}>", _dark_mode(), background, *parts, "</svg>", ""])


def _dark_mode() -> str:
    """Return a style sheet that replaces the colours in dark mode."""
    rules = [
        f'[{use}="{light}"] {{ {use}: {dark}; }}'
        for light, dark in DARK.items()
        for use in ("fill", "stroke")
    ]
    lines = ["<style>@media (prefers-color-scheme: dark) {", *rules, "}</style>"]
    return "\n".join(lines)


def _text(x: float, y: float, text: str, anchor: str = "start", fill: str = INK) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"'
    return f"<text {where}>{escape(text)}</text>"


def _chart(lines: Mapping[str, Points], x: str, y: str, log: bool = False) -> str:
    """Return a chart of lines, whose names stand above it; `log` is of the vertical axis."""
    width, height, left, top = 480.0, 260.0, 70.0, 30.0
    scaled = {n: [(a, math.log10(b) if log else b) for a, b in p] for n, p in lines.items()}
    every = [point for points in scaled.values() for point in points]
    (low_x, low_y), (high_x, high_y) = (
        tuple(f(v) for v in zip(*every, strict=True)) for f in (min, max)
    )

    def at(a: float, b: float) -> tuple[float, float]:
        right, bottom = width - 15, height - 40
        return (
            left + (a - low_x) / (high_x - low_x) * (right - left),
            bottom - (b - low_y) / (high_y - low_y) * (bottom - top),
        )

    def shown(value: float) -> str:
        return f"{10**value:.0e}" if log else f"{value:,.0f}"

    parts = [_text(width / 2, height - 8, x, "middle"), _text(8, 18, y)]
    for share in (0, 0.5, 1):
        a, b = low_x + share * (high_x - low_x), low_y + share * (high_y - low_y)
        parts.append(_text(at(a, low_y)[0], height - 24, f"{a:g}", "middle"))
        parts.append(_text(left - 6, at(low_x, b)[1] + 4, shown(b), "end"))
        line = f'<path d="M{left} {at(low_x, b)[1]:.1f}H{width - 15}" stroke="#ddd"/>'
        parts.append(line)
    for i, (name, points) in enumerate(scaled.items()):
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in (at(*point) for point in points))
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{COLOURS[i]}" stroke-width="2"/>'
        )
        parts.append(_text(200 + 95 * i, 18, name, fill=COLOURS[i]))
    return _svg(width, height, parts)


def _energy(outputs: Sequence[str]) -> tuple[str, str]:
    energies = json.loads(outputs[-1])["energies"]
    drawn = _chart({"energy": list(enumerate(energies))}, "sweep over all units", "energy")
    return "The energy of the network falls from sweep to sweep and then stays", drawn


def _gradients(outputs: Sequence[str]) -> tuple[str, str]:
    lines = {}
    for name, output in zip(("RNN", "LSTM"), outputs[-2:], strict=True):
        rows = re.findall(r"^ +(\d+) +(\d\S*) ", output.partition("\n\n")[0], re.M)
        lines[name] = [(float(a), float(b)) for a, b in rows]
    drawn = _chart(lines, "distance in characters", "norm of the gradient", log=True)
    return "Norm of the gradient by distance: the RNN's falls much faster than the LSTM's", drawn


def _points(outputs: Sequence[str]) -> tuple[str, str]:
    spec = importlib.util.spec_from_file_location("points", ROOT / "corpora" / "points.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    runs = module.run(False, False), module.run(False), module.run(True)
    names = ("all points", "one point", "with decay")
    lines = {n: list(enumerate(run)) for n, run in zip(names, runs, strict=True)}
    return "Theta by step: without decay it keeps bouncing", _chart(lines, "step", "theta")


def _alignment(outputs: Sequence[str]) -> tuple[str, str]:
    """Return the heat map that a terminal shows by four shades, two characters a cell."""
    rows = outputs[-1].rstrip("\n").split("\n")
    (head,) = (i for i, row in enumerate(rows) if re.match(r" +(\S )+\S$", row) and "a b" in row)
    columns = rows[head].split()
    left = rows[head].index(columns[0])
    parts = [_text(66 + 22 * i, 16, column, "middle") for i, column in enumerate(columns)]
    for j, row in enumerate(rows[head + 1 :]):
        name, cells = row[:left].strip(), row[left:]
        parts.append(_text(44, 38 + 22 * j, name, "end"))
        for i in range(len(columns)):
            shade = " ░▒▓█".index(cells[2 * i : 2 * i + 1] or " ") / 4
            place = f'x="{56 + 22 * i}" y="{23 + 22 * j}" width="20" height="20"'
            parts.append(f'<rect {place} fill="{COLOURS[0]}" fill-opacity="{shade or 0.04:g}"/>')
    size = 60 + 22 * len(columns), 28 + 22 * (len(rows) - head - 1)
    return "Attention by target (rows) and source: the high weights run backwards", _svg(
        *size, parts
    )


def _its(outputs: Sequence[str]) -> tuple[str, str]:
    rows = re.findall(r"^(\d\.\d+)\t(\d\.\d+)\t(\S+)$", outputs[0], re.M)[1:]
    words = [(word, float(a), float(b)) for a, b, word in rows if word not in ("<bos>", "<eos>")]
    parts = [_text(110, 16, "head 0", fill=COLOURS[0]), _text(250, 16, "head 1", fill=COLOURS[1])]
    for i, (word, *weights) in enumerate(words):
        parts.append(_text(96, 38 + 20 * i, word, "end"))
        for head, weight in enumerate(weights):
            place = (
                f'x="{110 + 140 * head}" y="{26 + 20 * i}" width="{130 * weight:.1f}" height="15"'
            )
            parts.append(f'<rect {place} fill="{COLOURS[head]}"/>')
    size = 400, 34 + 20 * len(words)
    return "What two heads read from the word its: one of them the animal", _svg(*size, parts)


def _tree(outputs: Sequence[str]) -> tuple[str, str]:
    rows = re.findall(r"^([│ ]*)[├└]── ([■✗]? ?)'(.)'  (\S+) → (\S+)(.*)$", outputs[-1], re.M)
    parts, last = [], {-1: (30.0, 20.0)}
    for i, (indent, mark, token, _, total, rank) in enumerate(rows):
        depth = len(indent) // 4
        x, y = 60 + 95.0 * depth, 20 + 19.0 * i
        above = last[depth - 1]
        last[depth] = (x, y)
        colour = "#999" if "✗" in mark else COLOURS[0] if "rank 0" in rank else INK
        path = f"M{above[0] + 6:.0f} {above[1]:.0f}V{y:.0f}H{x - 6:.0f}"
        parts.append(f'<path d="{path}" fill="none" stroke="#999"/>')
        colour = "#767676" if colour == "#999" else colour
        parts.append(_text(x, y + 4, f"{token} {total}", fill=colour))
    size = 540, 30 + 19 * len(rows)
    return "The tree of beam search: each hypothesis with its sum of log-probabilities", _svg(
        *size, parts
    )


def _capitals(outputs: Sequence[str]) -> tuple[str, str]:
    """Return the words in a plane; the last output has their coordinates (`companion.py`)."""
    places = json.loads(outputs[-1])
    xs, ys = zip(*places.values(), strict=True)
    spread = max(max(xs) - min(xs), max(ys) - min(ys))
    parts, at = [], {}
    for word, (x, y) in places.items():
        at[word] = (50 + (x - min(xs)) / spread * 340, 20 + (y - min(ys)) / spread * 340)
    words = list(at)
    for country, capital in zip(words[::2], words[1::2], strict=True):
        (a, b), (c, d) = at[country], at[capital]
        parts.append(f'<path d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" stroke="#bbb"/>')
        for word, colour in ((country, COLOURS[0]), (capital, COLOURS[1])):
            parts.append(_text(*at[word], word, "middle", colour))
    height = 40 + (max(ys) - min(ys)) / spread * 340
    return "Countries and capitals by the two principal components", _svg(440, height, parts)


PICTURES: Mapping[str, Callable[[Sequence[str]], tuple[str, str]]] = {
    "1.6": _energy,
    "2.4": _gradients,
    "2.8": _points,
    "3.2": _alignment,
    "3.7": _its,
    "4.4": _tree,
    "5.7": _capitals,
}
