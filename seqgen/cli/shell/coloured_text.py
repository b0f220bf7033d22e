"""Text with tokens coloured by value; pointing at a token shows the value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from seqgen import wording
from seqgen.cli.shell.page import figure

RGB = tuple[int, int, int]
WHITE, ORANGE, BLUE, RED, GREEN = (
    (255, 255, 255),
    (255, 150, 30),
    (110, 170, 255),
    (255, 125, 105),
    (120, 215, 120),
)


@dataclass(frozen=True)
class Scale:
    """Maps values to colours, in a straight line between two colours each.

    Attributes:
        low: the value of the first colour; lower ones have it too.
        high: the value of the last colour; higher ones have it too.
        colours: at equal distances from low to high.
    """

    low: float
    high: float
    colours: tuple[RGB, ...]

    def rgb(self, value: float) -> RGB:
        """Return the colour of a value."""
        span = self.high - self.low
        share = 0.0 if span <= 0 else min(1.0, max(0.0, (value - self.low) / span))
        at = share * (len(self.colours) - 1)
        first = min(int(at), len(self.colours) - 2)
        between = zip(self.colours[first], self.colours[first + 1], strict=True)
        red, green, blue = (round(a + (at - first) * (b - a)) for a, b in between)
        return red, green, blue

    def css(self, value: float) -> str:
        """Return the colour as CSS writes it."""
        return "#{:02x}{:02x}{:02x}".format(*self.rgb(value))


def share_scale(high: float = 1.0) -> Scale:
    """Return white for 0 and orange for `high`: for gates, and for weights of attention."""
    return Scale(0.0, high, (WHITE, ORANGE))


@dataclass(frozen=True)
class ColouredSpan:
    """A token.

    Attributes:
        text: what is shown of it.
        value: gives its colour.
        about: is read out for it.
        marked: it is framed.
    """

    text: str
    value: float
    about: str
    marked: bool = False


def coloured_text(spans: Iterable[ColouredSpan], scale: Scale, caption: str) -> str:
    """Return a text as HTML.

    Args:
        spans: its tokens.
        scale: what colours mean.
        caption: what the colours show.
    """
    body = "".join(_span(span, scale) for span in spans)
    label = f"{caption}. Arrow keys move from token to token."
    return figure(f"{escape(caption)} {key(scale)}", label, body, "tokens walk", "p")


def _span(span: ColouredSpan, scale: Scale) -> str:
    about = escape(span.about)
    shown = escape(visible(span.text)).replace("\n", "↵\n")
    word = " word" if span.marked else ""
    colour = scale.css(span.value)
    return (
        f'<span class="v{word}" style="background:{colour}" title="{about}" data-t="{about}">'
        f"{shown}</span>"
    )


def visible(text: str) -> str:
    """Return a text in which characters that cannot be shown are replaced, newlines kept."""
    return wording.visible(text, kept="\n\t") or "\u2205"


def key(scale: Scale) -> str:
    """Return what the colours of a scale mean, as HTML."""
    places = len(scale.colours)
    values = [scale.low + (scale.high - scale.low) * i / (places - 1) for i in range(places)]
    return "".join(
        f'<span class="one"><span class="key" style="background:{scale.css(value)}"></span>'
        f"{value:.3g}</span>"
        for value in values
    )
