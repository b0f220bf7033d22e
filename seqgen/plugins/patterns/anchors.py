"""Anchors of regular expressions: zero-width conditions on the text around a position.

What is behind a place is known when a text gets there. What is ahead of it is not: an anchor such
as $ promises it, and what is read next must keep the promise.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from typing import NamedTuple

ANY = ((0, 0x10FFFF),)
NEWLINE = ((0x0A, 0x0A),)
OTHERS = ((0, 0x09), (0x0B, 0x10FFFF))


class Behind(enum.IntEnum):
    """Kind of the character before a position: none, a newline, or another character."""

    NOTHING = 0
    NEWLINE = 1
    CHARACTER = 2


class Ahead(enum.IntEnum):
    """Condition on the text after a position; each value implies the one before it."""

    ANYTHING = 0
    NEWLINE_OR_END = 1
    LAST_NEWLINE_OR_END = 2
    END = 3


class Anchor(enum.Enum):
    """Anchor of an expression: the greatest `Behind` and the least `Ahead` that it allows."""

    BEGIN = Behind.NOTHING, Ahead.ANYTHING
    LINE_BEGIN = Behind.NEWLINE, Ahead.ANYTHING
    LINE_END = Behind.CHARACTER, Ahead.NEWLINE_OR_END
    LAST_LINE_END = Behind.CHARACTER, Ahead.LAST_NEWLINE_OR_END
    END = Behind.CHARACTER, Ahead.END


class Context(NamedTuple):
    """Context of a position in a text: the character before it and conditions on the rest.

    Attributes:
        behind: what was read last, as far as any anchor asks for it.
        ahead: what was promised.
        lines: whether a newline behind it makes a difference.
    """

    behind: Behind
    ahead: Ahead
    lines: bool

    @classmethod
    def of_begin(cls, anchors: Collection[Anchor]) -> Context:
        """Create the context at the start of a text, for an expression with these anchors."""
        anywhere = all(anchor.value[0] == Behind.CHARACTER for anchor in anchors)
        behind = Behind.CHARACTER if anywhere else Behind.NOTHING
        return cls(behind, Ahead.ANYTHING, Anchor.LINE_BEGIN in anchors)

    def with_anchor(self, anchor: Anchor) -> Context | None:
        """Add an anchor's condition to the context; None if the anchor does not match here."""
        behind, ahead = anchor.value
        return self._replace(ahead=max(self.ahead, ahead)) if self.behind <= behind else None

    def steps(self) -> Iterator[tuple[tuple[tuple[int, int], ...], Context]]:
        """Yield the character ranges that may come next, each with the context after them.

        A newline that was promised to be the last character promises the end.
        """
        after = self._replace(behind=Behind.CHARACTER)
        after_newline = after._replace(behind=Behind.NEWLINE) if self.lines else after
        if self.ahead == Ahead.LAST_NEWLINE_OR_END:
            yield NEWLINE, after_newline._replace(ahead=Ahead.END)
        elif self.ahead == Ahead.NEWLINE_OR_END:
            yield NEWLINE, after_newline._replace(ahead=Ahead.ANYTHING)
        elif self.ahead == Ahead.ANYTHING and self.lines:
            yield NEWLINE, after_newline
            yield OTHERS, after
        elif self.ahead == Ahead.ANYTHING:
            yield ANY, after
