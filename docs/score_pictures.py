"""Draw the pictures of the pages about scoring and predicting, as SVG files in `docs/pictures/`.

    python docs/score_pictures.py           # all, in about two minutes; `types` needs gguf
    python docs/score_pictures.py compare   # one of them

They share sizes and colours with `docs/pictures.py`, and show the output of real models with fixed
seeds.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pictures import FOLDER, ROOT, bar, label, records_of, run, svg

ROW = 20  # pixels
NETWORK = "train corpora/play.txt --model lstm --layers 1 --hidden-size 64 --steps 300 --seed 1"
MASKED = (
    "train corpora/watch.txt --documents line --tokenizer whitespace --model bert --layers 1 "
    "--hidden-size 32 --heads 2 --lr 0.01 --steps 200 --seed 1 --precision float64 --name blanks"
)
TAGGER = (
    "train corpora/tags.tsv --task tag --hidden-size 32 --lr 0.01 --steps 400 --seed 1 "
    "--precision float32 --name tagger"
)
SMALL = (
    "train corpora/play.txt --model transformer --layers 2 --hidden-size 64 --heads 2 "
    "--tokenizer byte --steps 200 --seed 1 --precision float32 --name small"
)


def seqgen(line: str, *arguments: str) -> list[dict[str, Any]]:
    """Run a command line, with further arguments that may have spaces; return its JSON records."""
    return records_of(*line.split(), *arguments)


def count(order: int) -> None:
    """Train an n-gram model of characters of the play, called by its order."""
    seqgen(f"train corpora/play.txt --model ngram --order {order} --name {order}-gram")


def compare() -> str:
    """Draw the bits per byte of four models, with the intervals of `seqgen compare`."""
    for order in (3, 6, 15):
        count(order)
    seqgen(f"{NETWORK} --name lstm")
    records = seqgen("compare 3-gram 6-gram 15-gram lstm")
    records.sort(key=lambda record: record["bits_per_byte"])
    parts = [label(12, 22, "Bits per byte of the held-out text", "head")]
    for row, record in enumerate(records):
        y, scale = 40 + 34 * row, 85.0
        bits, low, high = (record[key] for key in ("bits_per_byte", "low", "high"))
        parts += [
            label(100, y + 14, record["model"], "", "end"),
            bar(108, y, scale * bits, 20, "bar", 0.75),
            bar(108 + scale * low, y + 8, scale * (high - low), 4, "heat"),
            label(116 + scale * high, y + 15, f"{bits:.3f}", "soft"),
        ]
    y = 40 + 34 * len(records) + 8
    parts += [bar(12, y - 2, 14, 4, "heat"), label(32, y + 4, "95 % interval", "soft")]
    return svg("Four models compared", y + 16, parts)


def surprisal() -> str:
    """Draw two lines of a text, each character shaded by its surprisal."""
    count(6)
    text = "My lord, the king is at the gate.\nMy lord, the zebra is at the gate.\n"
    path = Path(os.environ["SEQGEN_HOME"]) / "lines.txt"
    path.write_text(text, encoding="utf-8")
    records = seqgen("perplexity -m 6-gram --per-token", str(path))
    parts, x, y = [label(12, 22, "Text, shaded by surprisal", "head")], 12.0, 36.0
    for record in (r for r in records if "token" in r):
        bits = record["surprisal_bits"]
        if record["token"] == "\n":
            x, y = 12.0, y + 30
            continue
        parts += [
            bar(x, y, 10.7, 22, "heat", min(1.0, bits / 10)),
            label(x + 5.3, y + 16, record["token"], "code", "middle"),
        ]
        x += 10.7
    parts.append(label(12, y + 14, "0 bits", "soft"))
    parts += [bar(60 + 16 * i, y + 2, 16, 14, "heat", i / 10) for i in range(11)]
    parts.append(label(244, y + 14, "10 bits or more", "soft"))
    return svg("Surprisal of each character", y + 32, parts)


def orders() -> str:
    """Draw bits per character of the play by the order of an n-gram model."""
    every = (*range(1, 9), 10, 15, 20)
    for order in every:
        count(order)
    names = " ".join(f"{order}-gram" for order in every)
    records = {record["model"]: record for record in seqgen(f"compare {names} --resamples 100")}
    parts = [label(12, 22, "Bits per character of held-out text, by order", "head")]
    for row, order in enumerate(every, 1):
        bits, y = records[f"{order}-gram"]["bits_per_char"], 14 + 22 * row
        parts += [
            label(30, y + 13, str(order), "", "end"),
            bar(38, y, 62 * bits, 16, "bar"),
            label(44 + 62 * bits, y + 13, f"{bits:.2f}", "soft"),
        ]
    return svg("The order of an n-gram model", 22 + 22 * (len(every) + 1), parts)


def heads() -> str:
    """Draw what two heads of a masked model attend to from the word "watch"."""
    seqgen(MASKED)
    line = ["inspect", "--text", "he will watch the new film", "-m", "blanks", "-q"]
    table = run(*line, "--attention", "--token", "watch").split("\n\n")[0]
    rows = [row.split("\t") for row in table.splitlines()][1:]
    parts = [
        label(12, 22, "What “watch” attends to", "head"),
        label(90, 46, "head 0", "soft"),
        label(250, 46, "head 1", "soft"),
    ]
    for number, (*weights, token) in enumerate(rows):
        y = 54 + ROW * number
        parts.append(label(80, y + 13, token, "head" if token == "watch" else "", "end"))
        for column, weight in enumerate(map(float, weights)):
            x = 90 + 160 * column
            parts += [
                bar(x, y, 110 * weight, 14, "bar"),
                label(x + 110 * weight + 5, y + 12, f"{weight:.0%}", "soft"),
            ]
    return svg("Attention of two heads", 54 + ROW * len(rows) + 12, parts)


def blanks() -> str:
    """Draw the most probable words for the blank of two sentences."""
    seqgen(MASKED)
    texts = ["he will [MASK] the new film", "she wore a [MASK] watch to the film"]
    parts, y = [], 22
    for record in records_of("fill", *texts, "-m", "blanks", "--top", "4"):
        parts.append(label(12, y, record["text"], "head"))
        y += 10
        for token, share in zip(record["tokens"][0], record["probabilities"][0], strict=True):
            parts += [
                label(80, y + 13, token, "", "end"),
                bar(90, y, 250 * share, 14, "bar"),
                label(
                    96 + 250 * share, y + 12, f"{share:.0%}" if share >= 0.01 else "< 1%", "soft"
                ),
            ]
            y += ROW
        y += 28
    return svg("Words that fill a blank", y - 22, parts)


def tags() -> str:
    """Draw the tags that a tagger predicts for two sentences that begin alike."""
    seqgen(TAGGER)
    sentences = ["the old watch stopped", "the old watch the barn"]
    text = "\n\n".join(sentence.replace(" ", "\n") for sentence in sentences)
    records = records_of("predict", "-m", "tagger", text=text)
    parts, y = [], 22
    for sentence, record in zip(sentences, records, strict=True):
        parts.append(label(12, y, sentence, "head"))
        y += 10
        columns = (record[key] for key in ("tokens", "tags", "probabilities"))
        for word, tag, share in zip(*columns, strict=True):
            parts += [
                label(80, y + 13, word, "", "end"),
                label(92, y + 13, tag, "code"),
                bar(150, y, 190 * share, 14, "bar"),
                label(156 + 190 * share, y + 12, f"{share:.1%}", "soft"),
            ]
            y += ROW
        y += 28
    return svg("Predicted tags of two sentences", y - 22, parts)


def types() -> str:
    """Draw the size and the bits per character of a GGUF file by the type of its numbers."""
    seqgen(SMALL)
    home = Path(os.environ["SEQGEN_HOME"])
    play = (ROOT / "corpora" / "play.txt").read_text(encoding="utf-8")
    text = play[-len(play) // 10 :]  # the held-out part
    parts = [
        label(12, 22, "Export to GGUF by type of the weights", "head"),
        label(76, 46, "size of the file", "soft"),
        label(386, 46, "bits/char", "soft", "end"),
    ]
    for row, kind in enumerate(("f32", "f16", "q8_0", "q5_0", "q4_0")):
        y, path = 56 + 24 * row, home / f"{kind}.gguf"
        run("export", "small", "--format", "gguf", "--type", kind, "--out", str(path), "-q")
        run("import", str(path), "--name", kind, "-q")
        (record,) = records_of("perplexity", "-", "-m", kind, text=text)
        kilobytes = path.stat().st_size / 1000
        parts += [
            label(66, y + 13, kind, "code", "end"),
            bar(76, y, 0.35 * kilobytes, 16, "bar"),
            label(82 + 0.35 * kilobytes, y + 13, f"{kilobytes:.0f} kB", "soft"),
            label(386, y + 13, f"{record['bits_per_char']:.3f}", "", "end"),
        ]
    return svg("Size and quality of GGUF files", 56 + 24 * 5 + 8, parts)


def report() -> str:
    """Draw two figures of a report: calibration, and loss by class of token."""
    count(6)
    out = Path(os.environ["SEQGEN_HOME"]) / "report.html"
    (record,) = seqgen("report -m 6-gram --out", str(out))
    parts = [label(12, 22, "Calibration", "head"), label(215, 22, "Bits by class of token", "head")]
    left, bottom, size = 34.0, 202.0, 150.0
    parts.append(
        f'<path class="line" d="M{left} {bottom}L{left + size} {bottom - size}" fill="none"/>'
    )
    for cell in record["calibration"]:
        if cell["count"]:
            x, y = left + size * cell["said"], bottom - size * cell["frequency"]
            parts.append(f'<circle class="heat" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
    parts += [
        label(left + size / 2, bottom + 20, "predicted", "soft", "middle"),
        label(12, bottom - size - 12, "observed", "soft"),
    ]
    for row, part in enumerate(record["by_class"]):
        y = 40 + 34 * row
        parts += [
            label(215, y + 10, part["name"], "soft"),
            bar(215, y + 15, 38 * part["bits"], 10, "bar"),
            label(220 + 38 * part["bits"], y + 25, f"{part['bits']:.1f}", "soft"),
        ]
    return svg("Two figures of a report", bottom + 34, parts)


PICTURES: Sequence[Callable[[], str]] = (
    compare,
    surprisal,
    orders,
    heads,
    blanks,
    tags,
    types,
    report,
)


def main(names: Iterable[str]) -> None:
    """Write the pictures of these names."""
    wanted = {*names} or {picture.__name__ for picture in PICTURES}
    for picture in PICTURES:
        if picture.__name__ in wanted:
            with tempfile.TemporaryDirectory() as home:
                os.environ["SEQGEN_HOME"] = home
                drawn = picture()
            (FOLDER / f"{picture.__name__}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
