"""Anchors: places of a text that an expression names by what is around them, not by a character.

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
    """What is behind a place."""

    NOTHING = 0
    NEWLINE = 1
    CHARACTER = 2


class Ahead(enum.IntEnum):
    """What is ahead of a place, each a case of the one before it."""

    ANYTHING = 0
    NEWLINE_OR_END = 1
    LAST_NEWLINE_OR_END = 2
    END = 3


class Anchor(enum.Enum):
    """What an anchor asks for: the most that may be behind it, and the least ahead."""

    BEGIN = Behind.NOTHING, Ahead.ANYTHING
    LINE_BEGIN = Behind.NEWLINE, Ahead.ANYTHING
    LINE_END = Behind.CHARACTER, Ahead.NEWLINE_OR_END
    LAST_LINE_END = Behind.CHARACTER, Ahead.LAST_NEWLINE_OR_END
    END = Behind.CHARACTER, Ahead.END


class Context(NamedTuple):
    """What is around a place of a text.

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
        """Return the context in which a text begins, of an expression that has these anchors."""
        anywhere = all(anchor.value[0] == Behind.CHARACTER for anchor in anchors)
        behind = Behind.CHARACTER if anywhere else Behind.NOTHING
        return cls(behind, Ahead.ANYTHING, Anchor.LINE_BEGIN in anchors)

    def with_anchor(self, anchor: Anchor) -> Context | None:
        """Return the context after an anchor, or None where it does not hold."""
        behind, ahead = anchor.value
        return self._replace(ahead=max(self.ahead, ahead)) if self.behind <= behind else None

    def steps(self) -> Iterator[tuple[tuple[tuple[int, int], ...], Context]]:
        """Yield the characters that may be read, as ranges of code points, and the context then.

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
