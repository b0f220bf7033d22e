"""Draw the chart of `results.md`, `architectures.svg`, from a table of `evidence/benchmarks.md`.

    python docs/chart.py

The table under "Architectures in one unit" is the only place where the figures are written.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))  # a test loads this file from elsewhere

from pictures import bar, label, svg  # noqa: E402

HEADING = "## Architectures in one unit"
TITLE = "Bits per byte of tiny Shakespeare, fewer is better"
LEFT, TOP, ROW, SCALE = 152, 36, 22, 60  # pixels; SCALE of them are a bit per byte
# The class of colour of a kind of model, a part of its name in the table, and its name.
KINDS = (
    ("heat", "words", "n-grams of words"),
    ("good", "gram, characters", "n-grams of characters"),
    ("bar", "", "networks, five minutes"),
)


def rows() -> list[tuple[str, float, float]]:
    """Return the table: each model, its bits per byte, and the part of them for unknown words."""
    page = (DOCS / "evidence" / "benchmarks.md").read_text(encoding="utf-8")
    section = re.split(r"\n##+ ", page.split(HEADING)[1])[0]
    cells = (re.split(r" *\| *", line.strip("| ")) for line in section.splitlines() if "|" in line)
    return [(c[0], float(c[2]), float(c[3])) for c in cells if re.fullmatch(r"[\d.]+", c[2])]


def draw() -> str:
    """Return the picture as SVG: a bar for each model, the part for unknown words paler."""
    parts, y = [label(14, 22, TITLE, "head")], TOP
    for name, bits, unknown in rows():
        known = (bits - unknown) * SCALE
        kind = next(kind for kind, part, _ in KINDS if part in name)
        parts += [
            label(LEFT - 8, y + 13, name.removesuffix(", characters"), "", "end"),
            bar(LEFT, y, known, 16, kind),
            *([bar(LEFT + known, y, unknown * SCALE, 16, kind, 0.45)] if unknown else []),
            label(LEFT + bits * SCALE + 6, y + 13, f"{bits:.3f}", "soft"),
        ]
        y += ROW
    y += 8
    for kind, _, text in KINDS:
        parts += [bar(14, y, 12, 12, kind), label(32, y + 11, text, "soft")]
        y += 19
    parts += [bar(200, y - 57, 12, 12, "heat", 0.45), label(218, y - 46, "unknown words", "soft")]
    return svg(TITLE, y + 6, parts)


if __name__ == "__main__":
    (DOCS / "architectures.svg").write_text(draw(), encoding="utf-8")
