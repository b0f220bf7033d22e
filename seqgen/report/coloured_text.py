"""A text whose tokens are coloured by a value each; the one that is pointed at says its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from seqgen import wording
from seqgen.report.colours import Scale


@dataclass(frozen=True)
class Span:
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


def coloured_text(spans: Iterable[Span], scale: Scale, caption: str) -> str:
    """Return a text as HTML.

    Args:
        spans: its tokens.
        scale: what colours mean.
        caption: what the colours show.
    """
    body = "".join(_span(span, scale) for span in spans)
    label = f"{caption}. Arrow keys move from token to token."
    return (
        f"<figure><figcaption>{escape(caption)} {key(scale)}</figcaption>"
        f'<p class="tokens walk" tabindex="0" role="group" aria-label="{escape(label)}">{body}</p>'
        '<p class="readout" aria-live="polite"></p></figure>'
    )


def _span(span: Span, scale: Scale) -> str:
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
