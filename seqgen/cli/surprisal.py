"""A text coloured by how surprising each token is; off a terminal, with digits below it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from seqgen.cli.output import console, put, say, standard_output

if TYPE_CHECKING:
    from rich.text import Text

    from seqgen.tasks.scoring.surprisal import Token

# A token of so many bits, or more, is as red as can be: 1 in 4,096.
MOST_BITS = 12


def put_coloured(tokens: Iterable[Token], quiet: bool) -> None:
    """Write a text, line by line: expected tokens green, surprising ones red.

    Where there is no colour, a line below each line has every token's bits, 9 and more as 9,
    under its first character.
    """
    out = console(standard_output())
    coloured = out.is_terminal and not out.no_color
    if not quiet:
        scale = (
            "from green, 0, to red, 12 and more"
            if coloured
            else "as a digit below each token, 9 for 9 or more"
        )
        say(f"bits: {scale}")
    for line in _lines(tokens):
        if coloured:
            out.print(_in_colour(line))
        else:
            put("".join(text for text, _ in line) + "\n")
            put("".join(_digits(text, bits) for text, bits in line) + "\n")


def _lines(tokens: Iterable[Token]) -> Iterable[list[tuple[str, float]]]:
    """Yield the pieces of each line, with their bits; the last may have no newline."""
    line: list[tuple[str, float]] = []
    held = 0.0  # bits of what is no whole character yet
    for token in tokens:
        bits = held + token.surprisal_bits
        held = 0.0 if token.text else bits
        *whole, rest = token.text.split("\n")
        for text in whole:
            yield [*line, (text, bits)]
            line = []
        if rest:
            line.append((rest, bits))
    if line:
        yield line


def _digits(text: str, bits: float) -> str:
    return f"{round(min(bits, 9))}".ljust(len(text))


def _in_colour(line: list[tuple[str, float]]) -> Text:
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    shown = Text()
    for text, bits in line:
        level = min(bits, MOST_BITS) / MOST_BITS
        red, green = round(255 * min(1, 2 * level)), round(255 * min(1, 2 - 2 * level))
        style = Style(color="black", bgcolor=Color.from_rgb(red, green, 90).name)
        shown.append(text, style)
    return shown
