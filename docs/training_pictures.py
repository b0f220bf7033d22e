"""Draw the pictures of the pages about training, as SVG files in `docs/pictures/`.

    python docs/training_pictures.py                # all of them, some minutes on one core
    python docs/training_pictures.py loss tokens    # some of them

Every picture is 400 wide, shows real runs with a fixed seed, and has colours for light and dark
mode.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

import pictures
from pictures import FOLDER, ROOT, label, records_of

from seqgen.models.recurrent.settings import RecurrentConfig

PLAY = "corpora/play.txt"
SMALL = ("--layers", "1", "--hidden-size", "128", "--precision", "float32", "--threads", "1")
HEIGHT = 240
LEFT, RIGHT, TOP, BOTTOM = 48, 385, 48, 198  # of the area of a chart
# Colours of series and of tokens, beside those that all pictures share.
STYLE = """.soft { font-size: 12px; } .line { fill: none; }
.s0 { stroke: #3f51b5; fill: #3f51b5; } .s1 { stroke: #d95f02; fill: #d95f02; }
.s2 { stroke: #2e7d32; fill: #2e7d32; } .s3 { stroke: #ad1457; fill: #ad1457; }
.s4 { stroke: #5a5a66; fill: #5a5a66; stroke-dasharray: 5 3; } text[class] { stroke: none; }
.t0 { fill: #dfe3f7; } .t1 { fill: #fbe3cf; }
@media (prefers-color-scheme: dark) {
  .s0 { stroke: #9fa8da; fill: #9fa8da; } .s1 { stroke: #ff8c3c; fill: #ff8c3c; }
  .s2 { stroke: #81c784; fill: #81c784; } .s3 { stroke: #f48fb1; fill: #f48fb1; }
  .s4 { stroke: #a9a9b6; fill: #a9a9b6; } .t0 { fill: #303a6b; } .t1 { fill: #6b4020; }
}
"""
Points = Sequence[tuple[float, float]]


def svg(title: str, height: float, parts: Sequence[str]) -> str:
    """Return an SVG file with the colours of series."""
    return pictures.svg(title, height, parts).replace("</style>", f"{STYLE}</style>")


def chart(
    title: str,
    lines: Mapping[str, Points],
    x: str,
    x_ticks: Mapping[float, str],
    y_ticks: Sequence[float],
    *,
    log: bool = False,
) -> str:
    """Return a chart of named lines; `log` is the horizontal axis."""
    scale: Callable[[float], float] = math.log10 if log else float
    low, high = scale(min(x_ticks)), scale(max(x_ticks))

    def at(a: float, b: float) -> tuple[float, float]:
        across = LEFT + (scale(a) - low) / (high - low) * (RIGHT - LEFT)
        up = BOTTOM - (b - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (BOTTOM - TOP)
        return across, max(TOP, min(BOTTOM, up))

    parts = [label(14, 22, title, "head")]
    for tick in y_ticks:
        y = at(min(x_ticks), tick)[1]
        parts.append(f'<path class="line" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
        parts.append(label(LEFT - 6, y + 4, f"{tick:g}", "soft", "end"))
    for place, text in x_ticks.items():
        parts.append(label(at(place, y_ticks[0])[0], BOTTOM + 17, text, "soft", "middle"))
    parts.append(label((LEFT + RIGHT) / 2, BOTTOM + 34, x, "soft", "middle"))
    across = LEFT
    for number, (name, points) in enumerate(lines.items()):
        placed = [at(*point) for point in points]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in placed)
        parts.append(
            f'<polyline class="s{number}" points="{path}" style="fill:none;stroke-width:2"/>'
        )
        parts.append(label(across, 40, name, f"s{number}"))
        across += 7.2 * len(name) + 18
    return svg(title, HEIGHT, parts)


def losses(home: str, name: str) -> tuple[Points, Points]:
    """Return the training and the validation losses of a model by step."""
    log = (Path(home) / "models" / name / "metrics.jsonl").read_text(encoding="utf-8")
    records = [json.loads(line) for line in log.splitlines()]

    def of(key: str) -> Points:
        return [(r["step"], r[key]) for r in records if r.get(key) is not None]

    return of("train_loss"), of("val_loss")


def loss(home: str) -> str:
    """Return the loss curve of a run."""
    line = ("train", PLAY, "--model", "lstm", *SMALL, "--steps", "150", "--seed", "1")
    records_of(*line, "--set", "validate_every=15", "--name", "play")
    train, held_out = losses(home, "play")
    return chart(
        "Loss of an LSTM, nats per character",
        {"training": train, "validation": held_out},
        "step",
        {0: "0", 50: "50", 100: "100", 150: "150"},
        (1, 2, 3, 4, 5),
    )


def sizes(home: str) -> str:
    """Return the sizes of recurrent networks by the tokens that training processes."""
    chosen = sorted(RecurrentConfig.sizes, key=lambda s: (s.tokens, *s.settings.values()))
    drawn = [(1e5, 1, 128), *((s.tokens, *s.settings.values()) for s in chosen if s.tokens)]
    parts = [label(14, 22, "Recurrent sizes by tokens of training", "head")]
    widest, y = 3 * 512, 48
    for tokens, layers, units in drawn:
        width = 190 * math.sqrt(layers * units / widest)
        parts.append(label(150, y + 4, f"{layers} x {units}", "", "end"))
        parts.append(f'<rect class="s0" x="160" y="{y - 8}" width="{width:.0f}" height="14"/>')
        asked = "any" if tokens == 1e5 else f"{tokens / 1e6:g} M"
        parts.append(label(60, y + 4, asked, "soft", "end"))
        y += 24
    return svg("Recurrent sizes by tokens of training", y, parts)


def rates(home: str) -> str:
    """Return the losses of a ramp of `seqgen find-lr`."""
    line = ("find-lr", PLAY, "--model", "lstm", *SMALL, "--steps", "150", "--seed", "1")
    *points, last = records_of(*line)
    smoothed = [(p["lr"], p["smoothed"]) for p in points]
    found = [(last["suggested_lr"], 0.5), (last["suggested_lr"], 5)]
    return chart(
        "seqgen find-lr: loss while the rate rises",
        {
            "smoothed loss": smoothed,
            "suggested rate": found,
            "default rate": [(0.01, 0.5), (0.01, 5)],
        },
        "learning rate",
        {1e-6: "1e-6", 1e-4: "1e-4", 1e-2: "0.01", 1: "1", 10: "10"},
        (1, 2, 3, 4, 5),
        log=True,
    )


def bars(title: str, rows: Sequence[tuple[str, float, str]], scale: float) -> str:
    """Return horizontal bars: name, value and colour of each, or a heading."""
    parts, y = [label(14, 22, title, "head")], 36
    for name, value, kind in rows:
        if kind:
            parts.append(label(118, y + 13, name, "", "end"))
            parts.append(
                f'<rect class="{kind}" x="126" y="{y}" width="{scale * value:.0f}" height="16"/>'
            )
            parts.append(label(132 + scale * value, y + 13, f"{value:.2f}", "soft"))
        else:
            parts.append(label(14, y + 15, name, "soft"))
        y += 22
    return svg(title, y + 8, parts)


def evidence(page: str, heading: str) -> str:
    """Return a section of a page of evidence: its tables are where the figures are written."""
    text = (ROOT / "docs" / "evidence" / f"{page}.md").read_text(encoding="utf-8")
    return text.split(f"## {heading}\n")[1].split("\n## ")[0]


def fine_tuning(home: str) -> str:
    """Return the bits per character on verse of models of `evidence/lectures.md`."""
    section = evidence("lectures", "A change of domain")
    rows = []
    for name, model, kind in (
        ("a play's model", "play", "s1"),
        ("new, 30 steps", "verse-30", "s1"),
        ("tuned, 30", "tuned-30", "s0"),
        ("tuned, 300", "tuned-300", "s0"),
    ):
        found = re.search(rf"^{model} +[\d.]+ K +([\d.]+)", section, re.MULTILINE)
        rows.append((name, float(found[1]), kind))
    return bars("Bits per character on verse, fewer is better", rows, 70)


def tuning(home: str) -> str:
    """Return the best loss by the number of trials, of two samplers."""
    table = evidence("experiments", "What tuning finds").split("The best so far")[1]
    rows = [
        [c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines() if "|" in line
    ]
    trials = [float(cell) for cell in rows[0][1:]]
    drawn = {}
    for row in rows[2:4]:
        cells = zip(trials, row[1:], strict=True)
        drawn[f"--sampler {row[0]}"] = [(trial, float(cell)) for trial, cell in cells if cell]
    return chart(
        "Best validation loss by number of trials",
        drawn,
        "trials",
        {10: "10", 30: "30", 100: "100", 200: "200"},
        (2, 2.02, 2.04, 2.06, 2.08, 2.1),
        log=True,
    )


def data_size(home: str) -> str:
    """Return the bits per character of networks, n-gram models and mixtures by text."""
    table = evidence("experiments", "Networks mixed with n-gram models").splitlines()
    rows: list[tuple[str, float, str]] = []
    for start, name in (
        ("| the first 99 kB of tiny Shakespeare | 2 minutes", "99 kB, 2 minutes"),
        ("| tiny Shakespeare, medians of 3 seeds | 5 minutes", "1.1 MB, 5 minutes"),
        ("| WikiText-2, characters | 10 minutes", "10.8 MB, 10 minutes"),
        ("| | 30 minutes", "10.8 MB, 30 minutes"),
    ):
        line = next(line for line in table if line.startswith(start))
        cells = [float(cell) / math.log(2) for cell in line.split("|")[3:6]]
        rows.append((name, 0, ""))
        rows += zip(("LSTM", "n-gram", "mixture"), cells, ("s0", "s1", "s2"), strict=True)
    return bars("Bits per character by size of the text", rows, 90)


def architectures(home: str) -> str:
    """Return the bits per character of architectures by minutes of training."""
    table = evidence("experiments", "Architectures").splitlines()
    names, *rows = (
        [cell.strip(" *") for cell in line.split("|")[1:-1]]
        for line in table
        if re.match(r"\| (minutes|[\d.]+) \|", line)
    )
    lines = {
        name: [(float(row[0]), float(row[column]) / math.log(2)) for row in rows]
        for column, name in enumerate(names[1:5], 1)
    }
    counted = float(rows[0][5].split()[0]) / math.log(2)
    lines[names[5]] = [(float(row[0]), counted) for row in rows]
    return chart(
        "Bits per character by minutes of training",
        lines,
        "minutes",
        {float(row[0]): row[0] for row in rows},
        (2, 2.5, 3, 3.5, 4),
        log=True,
    )


def tokens(home: str) -> str:
    """Return a line of text in the tokens of three tokenizers."""
    text = "I have never liked hail, ferryman."
    parts, y = [label(14, 22, "One line in the tokens of three tokenizers", "head")], 36
    for kind, size in (("char", ()), ("word", ()), ("bpe", ("--vocab-size", "1000"))):
        folder = str(Path(home) / kind)
        records_of("tokenize", PLAY, "--train", kind, *size, "--out", folder)
        (line,) = records_of("tokenize", "-", "--tokenizer", folder, "--pieces", text=text)
        pieces = line["pieces"]
        parts.append(label(14, y + 16, kind, "soft"))
        x = 52.0
        for number, piece in enumerate(pieces):
            shown = piece.replace("\u2581", " ").replace("\\s", " ")
            width = 9.8 * len(shown)
            parts.append(
                f'<rect class="t{number % 2}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="24"/>'
            )
            text_at = f'x="{x:.1f}" y="{y + 17}" textLength="{width:.1f}"'
            parts.append(
                f'<text class="code" {text_at} xml:space="preserve">{escape(shown)}</text>'
            )
            x += width
        parts.append(label(52, y + 40, f"{len(pieces)} tokens", "soft"))
        y += 54
    return svg("One line in the tokens of three tokenizers", y + 4, parts)


def processes(home: str) -> str:
    """Return a diagram of two processes that share the rows of a batch."""
    parts = [label(14, 22, "One step on two processes", "head")]
    parts.append(label(16, 46, "batch: 8 rows", "soft"))
    for row in range(8):
        y = 54 + 18 * row + 10 * (row > 3)
        parts.append(f'<rect class="t{row // 4}" x="16" y="{y}" width="90" height="14"/>')
    for number in range(2):
        y = 54 + 82 * number
        parts.append(f'<rect class="t{number}" x="150" y="{y}" width="100" height="68" rx="6"/>')
        parts.append(label(200, y + 22, f"process {number}", "head", "middle"))
        parts.append(label(200, y + 40, "whole model", "soft", "middle"))
        parts.append(label(200, y + 56, "own gradients", "soft", "middle"))
        parts.append(f'<path class="line" d="M110 {y + 34}H146" stroke-width="2"/>')
        parts.append(f'<path class="line" d="M254 {y + 34}L288 129" stroke-width="2"/>')
    parts.append('<rect class="card" x="290" y="96" width="96" height="66" rx="6"/>')
    for number, text in enumerate(("mean of the", "gradients,", "same update")):
        parts.append(label(338, 118 + 17 * number, text, "soft", "middle"))
    return svg("One step on two processes", 224, parts)


def lessons(home: str) -> str:
    """Return the bits per character of the models of `tutorials/lessons.md`, as that page says."""
    page = (ROOT / "docs" / "tutorials" / "lessons.md").read_text(encoding="utf-8")
    rows = [
        (f"{order}-gram", float(re.search(rf"\| {order} \| ([\d.]+)", page)[1])) for order in (3, 6)
    ]
    rows.append(("20-gram", float(re.search(r"a 20-gram alone, with ([\d.]+)", page)[1])))
    for name, before in (
        ("window", "half a minute it reaches "),
        ("rnn", "The `rnn` reaches "),
        ("lstm", "the `lstm` "),
        ("transformer", "half a minute it reaches only "),
        ("lstm + 6-gram", "The mixture needs "),
    ):
        rows.append((name, float(re.search(re.escape(before) + r"([\d.]+\d)", page)[1])))
    drawn = [(name, bits, "s1" if "gram" in name else "s0") for name, bits in rows]
    return bars("Bits per character, fewer is better", drawn, 82)


PICTURES = {
    "architectures": architectures,
    "data-size": data_size,
    "lessons": lessons,
    "loss": loss,
    "sizes": sizes,
    "learning-rate": rates,
    "fine-tuning": fine_tuning,
    "tuning": tuning,
    "tokens": tokens,
    "processes": processes,
}


def main(names: Sequence[str]) -> None:
    """Draw the named pictures, or all."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ["SEQGEN_HOME"] = home
        for name in names or PICTURES:
            (FOLDER / f"{name}.svg").write_text(PICTURES[name](home), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
