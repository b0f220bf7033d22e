"""A text coloured by how surprising each token is; off a terminal, with digits below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from seqgen.cli.coloured import lines_of, put_lines
from seqgen.cli.output import Output
from seqgen.report.coloured_text import Scale

if TYPE_CHECKING:
    from seqgen.commands.scoring.surprisal import Token

# From green by yellow to red; a token of 12 bits, or more, is as red as can be: 1 in 4,096.
BITS = Scale(0, 12, ((0, 255, 90), (255, 255, 90), (255, 0, 90)))
LEGEND = (
    "bits: from green, 0, to red, 12 and more",
    "bits: as a digit below each token, 9 for 9 or more",
)


def put_coloured(tokens: Iterable[Token], out: Output) -> None:
    """Write a text, line by line: expected tokens green, surprising ones red."""
    put_lines(lines_of(_pieces(tokens)), BITS, _digit, None if out.quiet else LEGEND)


def _pieces(tokens: Iterable[Token]) -> Iterator[tuple[str, float]]:
    """Yield what each token adds to the text, with its bits."""
    held = 0.0  # bits of what is no whole character yet
    for token in tokens:
        bits = held + token.surprisal_bits
        held = 0.0 if token.text else bits
        yield token.text, bits


def _digit(bits: float) -> str:
    return f"{round(min(bits, 9))}"
