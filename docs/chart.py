"""Draw the chart of the README, `architectures.svg`, from a table of `evidence/benchmarks.md`.

    python docs/chart.py

The table under "Architectures in one unit" is the only place where the figures are written.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent
HEADING = "## Architectures in one unit"
CAPTION = "bits per byte of held-out text (tiny Shakespeare), the fewer the better"
LEFT, RIGHT, TOP, ROW, SCALE = 240, 750, 48, 30, 140  # pixels; SCALE of them are a bit per byte
UNKNOWN = "#b8b8b8"
# The colour of a kind of model, a part of its name in the table, and its name in the legend.
KINDS = (
    ("#c26d00", "words", "n-grams of words"),
    ("#2e7d32", "gram, characters", "n-grams of characters"),
    ("#2366a8", "", "networks, five minutes"),
)


def rows() -> list[tuple[str, float, float]]:
    """Return the table: each model, its bits per byte, and the part of them for unknown words."""
    page = (DOCS / "evidence" / "benchmarks.md").read_text(encoding="utf-8")
    section = re.split(r"\n##+ ", page.split(HEADING)[1])[0]
    cells = (re.split(r" *\| *", line.strip("| ")) for line in section.splitlines() if "|" in line)
    return [(c[0], float(c[2]), float(c[3])) for c in cells if re.fullmatch(r"[\d.]+", c[2])]


def draw() -> str:
    """Return the picture as SVG: a bar for each model, the part for unknown words in grey."""
    table = rows()
    height = TOP + ROW * len(table) + 38
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {RIGHT} {height}" role="img" '
        'font-family="sans-serif" font-size="14">',
        f"<title>{CAPTION}</title>",
        f'<rect width="{RIGHT}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="28" font-weight="bold">{CAPTION}</text>',
    ]
    for number, (name, bits, unknown) in enumerate(table):
        y = TOP + ROW * number
        known = (bits - unknown) * SCALE
        colour = next(colour for colour, part, _ in KINDS if part in name)
        out += [
            f'<text x="{LEFT - 10}" y="{y + 16}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{known:.1f}" height="22" fill="{colour}"/>',
            f'<rect x="{LEFT + known:.1f}" y="{y}" width="{unknown * SCALE:.1f}" height="22" '
            f'fill="{UNKNOWN}"/>',
            f'<text x="{LEFT + bits * SCALE + 6:.1f}" y="{y + 16}">{bits:.2f}</text>',
        ]
    y = TOP + ROW * len(table) + 22
    notes = [(UNKNOWN, "unknown words"), *((colour, text) for colour, _, text in KINDS)]
    for x, (colour, text) in zip((16, 160, 330, 530), notes, strict=True):
        out.append(f'<rect x="{x}" y="{y - 11}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{x + 18}" y="{y}">{text}</text>')
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    (DOCS / "architectures.svg").write_text(draw(), encoding="utf-8")
