"""Page sections about translations: examples, BLEU by length, and the lowest chrF."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from seqgen.cli.shell.colours import share_scale
from seqgen.cli.shell.page import figure, table
from seqgen.plugins.report.charts import drawing
from seqgen.plugins.report.translated import Translated, TranslatedLine
from seqgen.wording import replace_unprintable

# Pixels of a cell, around a character of a label, and around all.
CELL, CHARACTER, MARGIN = 18, 8, 6
# A longer label of a token is cut.
LONGEST = 12


def examples(made: Translated) -> str:
    """Render example translations with their attention."""
    parts = []
    for number, line in enumerate(made.examples, start=1):
        rows = [("source", line.source), ("reference", line.target), ("translation", line.text)]
        shown = [(name, replace_unprintable(text) or "(empty)") for name, text in rows]
        caption = f"Translation {number}; chrF {line.chrf:.1f}"
        parts.append(table(["", "text"], shown, caption, left=2))
        if line.attention is not None:
            parts.append(attention(line))
    if all(line.attention is None for line in made.examples):
        parts.append("<p>This model has no attention to show, or its texts are too long.</p>")
    return "".join(parts)


def attention(line: TranslatedLine) -> str:
    """Draw the attention of a translation to its source as a grid."""
    columns, rows = (list(map(_label, pieces)) for pieces in reversed(line.pieces))
    left, top = (2 * MARGIN + CHARACTER * max(map(len, side)) for side in (rows, columns))
    scale = share_scale()
    body = "".join(
        f'<text x="{left - MARGIN}" y="{top + CELL * (i + 0.7):.0f}" text-anchor="end">'
        f"{escape(row)}</text>"
        for i, row in enumerate(rows)
    )
    body += "".join(
        f'<text transform="translate({left + CELL * (j + 0.7):.0f} {top - MARGIN}) rotate(-90)">'
        f"{escape(column)}</text>"
        for j, column in enumerate(columns)
    )
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            weight = float(line.attention[i, j])
            about = escape(f"{row} reads {column}: {weight:.2f}")
            body += (
                f'<rect class="v" x="{left + CELL * j}" y="{top + CELL * i}" width="{CELL}" '
                f'height="{CELL}" fill="{scale.css(weight)}" data-t="{about}"/>'
            )
    width, height = left + CELL * len(columns) + MARGIN, top + CELL * len(rows) + MARGIN
    label = f"What each token of the translation {line.text!r} reads of the source"
    label = f"{replace_unprintable(label)}. Arrow keys move from cell to cell."
    caption = (
        "Rows are tokens of the translation, columns those of the source; a mean over layers and "
        "heads. Orange is 1, white is 0."
    )
    return figure(caption, label, drawing(width, height, label, body), "walk wide")


def _label(piece: str) -> str:
    shown = replace_unprintable(piece.strip() or piece.replace(" ", "␣").replace("\n", "↵"))
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def by_length(made: Translated) -> str:
    """Render BLEU overall and by source length as a table."""
    whole = made.metrics[0]
    rows: list[Sequence[str]] = [
        (_range(each), f"{each['pairs']:,}", f"{each['score']:.2f}", f"{each['exact_match']:.1%}")
        for each in made.by_length
    ]
    unit = made.by_length[0]["unit"]
    caption = f"{whole['metric']} of the first {made.pairs:,} held-out pairs: {whole['score']:.2f}"
    heads = [f"source, {unit}", "pairs", whole["metric"], "exact"]
    signature = f"{whole['signature']}; {made.search}"
    return table(heads, rows, caption, left=0) + f"<p><code>{escape(signature)}</code></p>"


def _range(each: dict[str, int]) -> str:
    least, most = each["least"], each["most"]
    return f"{least}" if least == most else f"{least} to {most}"


def worst(made: Translated) -> str:
    """Render the translations with the lowest chrF as a table."""
    rows = [
        (f"{line.chrf:.1f}", *(replace_unprintable(text) or "(empty)" for text in texts))
        for line in made.worst
        for texts in [(line.source, line.target, line.text)]
    ]
    caption = f"The {len(rows)} lowest of {made.pairs:,} by chrF of the line"
    return table(["chrF", "source", "reference", "translation"], rows, caption, left=4)
