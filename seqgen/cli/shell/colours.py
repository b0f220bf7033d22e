"""Colour scales for values, in HTML and on terminals."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Piecewise linear scale that maps values to colours.

    Attributes:
        low: the value of the first colour; lower ones have it too.
        high: the value of the last colour; higher ones have it too.
        colours: at equal distances from low to high.
    """

    low: float
    high: float
    colours: tuple[RGB, ...]

    def rgb(self, value: float) -> RGB:
        """Interpolate the colour of a value, as (red, green, blue)."""
        span = self.high - self.low
        share = 0.0 if span <= 0 else min(1.0, max(0.0, (value - self.low) / span))
        at = share * (len(self.colours) - 1)
        first = min(int(at), len(self.colours) - 2)
        between = zip(self.colours[first], self.colours[first + 1], strict=True)
        red, green, blue = (round(a + (at - first) * (b - a)) for a, b in between)
        return red, green, blue

    def css(self, value: float) -> str:
        """Interpolate the colour of a value, in CSS syntax."""
        return "#{:02x}{:02x}{:02x}".format(*self.rgb(value))


def share_scale(high: float = 1.0) -> Scale:
    """Make a scale from white at 0 to orange at `high`, for gates and attention weights."""
    return Scale(0.0, high, (WHITE, ORANGE))
