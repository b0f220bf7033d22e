"""Text coloured by a value per token; when not on a terminal, a digit below each token instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from seqgen.cli.shell.colours import Scale
from seqgen.cli.shell.output import Output, as_shown, console, put, say, standard_output

if TYPE_CHECKING:
    from rich.text import Text

    from seqgen.scoring.surprisal import Token

# From green by yellow to red; a token of 12 bits, or more, is as red as can be: 1 in 4,096.
BITS = Scale(0, 12, ((0, 255, 90), (255, 255, 90), (255, 0, 90)))
LEGEND = (
    "bits: from green, 0, to red, 12 and more",
    "bits: as a digit below each token, 9 for 9 or more",
)
# The pieces of a line, with their values.
Line = list[tuple[str, float]]


def lines_of(pieces: Iterable[tuple[str, float]]) -> Iterator[Line]:
    """Split coloured pieces of text into lines; a newline belongs to the line that it ends."""
    line: Line = []
    for text, value in pieces:
        *whole, rest = text.split("\n")
        for part in whole:
            yield [*line, (part, value)]
            line = []
        if rest:
            line.append((rest, value))
    if line:
        yield line


def put_lines(
    lines: Iterable[Line],
    scale: Scale,
    digit: Callable[[float], str],
    legend: tuple[str, str] | None = None,
) -> None:
    """Print text line by line, each piece on the background colour of its value.

    Where there is no colour, a line below each line has every piece's digit under its first
    character.

    Args:
        lines: see `lines_of`.
        scale: what colours mean.
        digit: what stands for a value.
        legend: is said first: what colours mean, and what digits mean.
    """
    out = console(standard_output())
    coloured = out.is_terminal and not out.no_color
    if legend is not None:
        say(legend[0] if coloured else legend[1])
    for line in lines:
        line = [(as_shown(text, sys.stdout), value) for text, value in line]
        if coloured:
            out.print(_in_colour(line, scale))
        else:
            put("".join(text for text, _ in line) + "\n")
            put("".join(digit(value).ljust(len(text)) for text, value in line) + "\n")


def _in_colour(line: Line, scale: Scale) -> Text:
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    shown = Text()
    for text, value in line:
        background = Color.from_rgb(*scale.rgb(value)).name
        shown.append(text, Style(color="black", bgcolor=background))
    return shown


def put_coloured(tokens: Iterable[Token], out: Output) -> None:
    """Print text line by line, with expected tokens in green and surprising ones in red."""
    legend = None if out.quiet else LEGEND
    put_lines(lines_of(_pieces(tokens)), BITS, lambda bits: f"{round(min(bits, 9))}", legend)


def _pieces(tokens: Iterable[Token]) -> Iterator[tuple[str, float]]:
    """Yield the text and the bits of each token."""
    held = 0.0  # bits of what is no whole character yet
    for token in tokens:
        bits = held + token.surprisal_bits
        held = 0.0 if token.text else bits
        yield token.text, bits
