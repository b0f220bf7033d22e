"""Attention to the source on the command line: options, heat maps of characters, pictures."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from seqgen.cli.shell.inputs import Input
from seqgen.cli.shell.output import console, is_terminal
from seqgen.cli.shell.output_files import PICTURES, check_picture
from seqgen.cli.shell.tables import figure
from seqgen.settings import OptionRule, Options, Panel, setting
from seqgen.settings.generation import ATTENTION_VIEWS, LookOptions
from seqgen.wording import replace_unprintable

if TYPE_CHECKING:
    import numpy as np
    from rich.text import Text

    from seqgen.generation.prompts import AttentionRecord
    from seqgen.scoring.surprisal import ScoredLine
    from seqgen.store.loaded import LoadedModel

L = TypeVar("L", bound=LookOptions)
WIDTH = 80
# Columns of a cell, and the most that labels take: on the left, and above (in lines).
CELL, WIDEST_LABEL, HIGHEST_LABEL = 2, 16, 10
SHADES = " ░▒▓█"


# Of an option that shows something else.
IN_PLACE_OF_ATTENTION = OptionRule((*ATTENTION_VIEWS, "--plot"), "give {other} or {flag}, not both")


class Picture(Options, panel=Panel.ATTENTION):
    """Option for a picture of a text's attention."""

    plot: Path | None = setting(
        "Draw the heat map into an .svg or .png file as well; further texts get FILE-1, FILE-2 and "
        "so on. Needs matplotlib.",
        reads="path",
        writes=True,
        endings=PICTURES,
    )

    def of(self, look: L) -> L:
        """Return the source options with attention turned on if a picture is requested."""
        return look if self.plot is None else replace(look, attention=True)


@dataclass
class AttentionView:
    """Prints or plots the attention of finished texts, one at a time.

    Attributes:
        options: what is asked for.
        plot: where the first text's picture goes; the n-th further one's name has `-n` in it.
        maps: draw heat maps on standard error.
        inputs: what the command reads, which no picture replaces.
        count: pictures drawn.
    """

    options: LookOptions
    plot: Path | None
    maps: bool
    inputs: Sequence[Input] = ()
    count: int = 0

    def __post_init__(self) -> None:
        if self.plot is not None:
            self._place()

    def at(self, loaded: LoadedModel, line: ScoredLine) -> AttentionRecord | None:
        """Compute the attention of a scored target to its source; None if not requested."""
        if not self.options.shows_something:
            return None
        from seqgen.generation.from_source import SourceReader

        reader = SourceReader(loaded, self.options)
        return reader.look_at((line.source, line.text), line.scored.tokens.tolist())

    def put(self, look: AttentionRecord | None, title: str) -> None:
        """Print the alignment and attention heat map of a text, or save its picture.

        Args:
            look: it; None where nothing is asked for.
            title: which text it is.
        """
        if look is None or look.attention is None:
            return
        weights = self.options.heads.mean(look.attention)
        title = f"{title}: {describe_heads(self.options, look.attention.shape)}"
        if self.plot is not None:
            from seqgen.cli.shell.pictures import draw_heat_map

            rows, columns = (list(map(label, x)) for x in (look.target_pieces, look.source_pieces))
            draw_heat_map(self._place(), weights, rows, columns, title)
            self.count += 1
        if self.maps and sys.stderr is not None:
            put_heat_map(weights, look.target_pieces, look.source_pieces, title)

    def _place(self) -> Path:
        """Choose the file name of the next picture."""
        number = f"-{self.count}" if self.count else ""
        path = self.plot.with_name(f"{self.plot.stem}{number}{self.plot.suffix}")
        return check_picture(path, self.inputs)


def describe_heads(options: LookOptions, shape: Sequence[int]) -> str:
    """Describe which layers and heads of attention (layers, heads, T, L) are shown."""
    heads, (layers, each) = options.heads, shape[:2]
    layer = f"mean of {layers} layers" if layers > 1 else "attention"
    layer = layer if heads.layer is None else f"layer {heads.layer}"
    if heads.head is not None:
        return f"{layer}, head {heads.head}"
    return f"{layer}, mean of {each} heads" if each > 1 else layer


def label(piece: str) -> str:
    """Format a token as a row or column label."""
    text = piece.strip() or piece.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    return replace_unprintable(text)


def put_heat_map(
    weights: np.ndarray, target: Sequence[str], source: Sequence[str], title: str
) -> None:
    """Draw a heat map on standard error: target tokens as rows, source tokens as columns.

    Shades are relative to the largest weight. One that is too wide is drawn in several parts.

    Args:
        weights: (T, L).
        target: the T tokens.
        source: the L tokens.
        title: stands above.
    """
    from rich.cells import cell_len
    from rich.text import Text

    out = console(sys.stderr)
    width = out.width if is_terminal(sys.stderr) else WIDTH
    most = weights.max(initial=0.0)
    out.print(f"{title}; darkest {figure(most, 2)}")
    rows, columns = list(map(label, target)), list(map(label, source))
    beside = min(WIDEST_LABEL, max(map(cell_len, rows), default=0))
    each = max(1, (width - beside - 1) // CELL)
    coloured = out.color_system is not None
    for begin in range(0, max(1, len(columns)), each):
        for line in _above(columns[begin : begin + each]):
            out.print(" " * (beside + 1) + line)
        for row, of_row in zip(rows, weights[:, begin : begin + each], strict=True):
            line = Text(_to_width(row, beside) + " ")
            for weight in of_row:
                line.append_text(_cell(weight / most if most else 0.0, coloured))
            line.rstrip()
            out.print(line)
        out.print()


def _cell(weight: float, coloured: bool) -> Text:
    """Format a heat-map cell, shaded by its weight relative to the largest."""
    from rich.text import Text

    if coloured:
        level = round(255 * weight)
        return Text(" " * CELL, style=f"on rgb({level},{level},{level})")
    return Text(SHADES[min(len(SHADES) - 1, round(weight * (len(SHADES) - 1)))] * CELL)


def _above(columns: Sequence[str]) -> Iterator[str]:
    """Yield the lines of column labels, written vertically."""
    labels = [
        column if len(column) <= HIGHEST_LABEL else column[: HIGHEST_LABEL - 1] + "…"
        for column in columns
    ]
    height = max(map(len, labels), default=0)
    for line in zip(*(text.rjust(height) for text in labels), strict=True):
        yield "".join(_to_width(character, CELL) for character in line).rstrip()


def _to_width(text: str, width: int) -> str:
    """Pad or cut a text to a number of terminal columns."""
    from rich.text import Text

    shown = Text(text)
    shown.truncate(width, overflow="ellipsis", pad=True)
    return shown.plain
