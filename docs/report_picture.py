"""Draw the picture of a report in the README, `report.svg`, from the page that seqgen writes.

    python docs/report_picture.py                    # a model of corpora/play.txt, 300 steps
    python docs/report_picture.py --page report.html  # a report that `seqgen report` has written

Puts the loss curve and the beginning of the coloured held-out text into one picture. The picture in
the README is of the report about the models of its demo.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent
TRAIN = "train corpora/play.txt --name play --model lstm --seed 1 --quiet --steps"
COLUMNS, ROWS, ADVANCE, LINE = 52, 11, 12.2, 27  # of the text; pixels a character and a line
LEFT, WIDTH, TEXT_TOP = 20, 680, 430


def report(steps: int) -> str:
    """Train a model, and return the HTML of its report."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SEQGEN_HOME": folder, "PYTHONPATH": str(DOCS.parent)}
        environment["OMP_NUM_THREADS"] = "1"
        page = Path(folder) / "report.html"
        for line in (f"{TRAIN} {steps}", f"report -m play --quiet --out {page}"):
            command = [sys.executable, "-m", "seqgen", *line.split()]
            subprocess.run(command, cwd=DOCS.parent, env=environment, check=True)
        return page.read_text(encoding="utf-8")


def draw(page: str) -> str:
    """Return the SVG: the curve of training and validation loss, and coloured text."""
    light, dark = (
        dict(re.findall(r"--(\w+):(#\w+)", part)) for part in page.split("@media(prefers-color", 1)
    )
    charts = re.findall(r'<svg class="chart".*?</svg>', page, re.DOTALL)
    chart = next(c for c in charts if 'aria-label="Loss: ' in c)
    chart = re.sub(r'var\(--(\w+)\)|stroke="currentColor"', lambda m: light[m[1]], chart)
    chart = re.sub(r' (?:class="v"|role="img"|data-t="[^"]*")', "", chart)
    place = f'<svg x="{LEFT}" y="50" width="640" height="330" '
    chart = chart.replace("<svg ", place, 1)
    chart = re.sub(r"<title>.*?</title>", "", chart, flags=re.DOTALL)
    height = TEXT_TOP + LINE * ROWS + 20
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            'font-family="sans-serif" font-size="22">',
            "<title>Part of a report: the loss curve, and held-out text coloured by surprisal"
            "</title>",
            f"<style>{style(light)}@media (prefers-color-scheme: dark) {{{style(dark)}",
            *(f'[fill="{light[c]}"]{{fill:{dark[c]}}}' for c in light if c[0] == "c"),
            *(f'[stroke="{light[c]}"]{{stroke:{dark[c]}}}' for c in light if c[0] == "c"),
            "}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
            f'<text x="{LEFT}" y="32" font-weight="bold">Loss: training (blue) and held-out text '
            "(red)</text>",
            f'<g font-size="20">{chart}</g>',
            f'<text x="{LEFT}" y="{TEXT_TOP - 14}" font-weight="bold">Held-out text, coloured by '
            "surprisal</text>",
            *coloured(page),
            "</svg>",
            "",
        ]
    )


def style(colours: dict[str, str]) -> str:
    """Return the rules for the colours of the page that have names."""
    return (
        f".paper{{fill:{colours['paper']}}}text{{fill:{colours['ink']}}}"
        ".token text{fill:#000;white-space:pre}"
        f".grid{{stroke:{colours['rule']};fill:none}}.axis{{stroke:{colours['faint']};fill:none}}"
    )


def coloured(page: str) -> list[str]:
    """Return rectangles and texts of the first lines of held-out text."""
    text = page.split('class="tokens walk"')[1].split("</p>")[0]
    tokens = re.findall(r'<span class="v" style="background:(#\w+)"[^>]*>(.*?)</span>', text, re.S)
    boxes, lines, column, row = [], [[]], 0, 0
    for colour, token in ((c, html.unescape(t)) for c, t in tokens):
        shown = token.strip("\n")
        if column + len(shown) > COLUMNS:
            row, column = row + 1, 0
            lines.append([])
        if row >= ROWS:
            break
        x, y = LEFT + column * ADVANCE, TEXT_TOP + row * LINE
        size = f'width="{max(1, len(shown)) * ADVANCE:.1f}" height="{LINE - 2}"'
        boxes.append(f'<rect x="{x:.1f}" y="{y}" {size} fill="{colour}"/>')
        lines[-1].append((x, shown))
        column += COLUMNS if shown.endswith("\u21b5") else max(1, len(shown))
    texts = [
        f'<text y="{TEXT_TOP + number * LINE + 19}" x="'
        + " ".join(f"{x:.1f}" for x, _ in line)
        + '">'
        + escape("".join(shown or " " for _, shown in line))
        + "</text>"
        for number, line in enumerate(lines[:ROWS])
        if line
    ]
    font = 'class="token" font-family="monospace" font-size="20" xml:space="preserve"'
    return [*boxes, f"<g {font}>", *texts, "</g>"]


def main() -> None:
    """Make the report and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--page", type=Path, help="a report, instead of training a model")
    parser.add_argument("--out", type=Path, default=DOCS / "report.svg")
    arguments = parser.parse_args()
    page = arguments.page
    text = page.read_text(encoding="utf-8") if page else report(arguments.steps)
    arguments.out.write_text(draw(text), encoding="utf-8")


if __name__ == "__main__":
    main()
