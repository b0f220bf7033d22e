"""Regular expressions in Python's syntax, parsed by `re` and added to a network."""

from __future__ import annotations

import functools
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqgen.errors import UsageError
from seqgen.plugins.patterns.anchors import Anchor
from seqgen.plugins.patterns.network import (
    LAST,
    CharacterNetwork,
    Ranges,
    common,
    inverse,
    ranges_of,
)
from seqgen.settings import require

if sys.version_info >= (3, 11):
    from re import _constants as sre
    from re import _parser as parser
else:
    import sre_constants as sre
    import sre_parse as parser

# Python warns of sets such as [[a], which may mean something else in a later version.
warnings.filterwarnings("ignore", "Possible .*set", FutureWarning, r"(seqgen|lark)\b")

MOST_CHARACTERS = 100_000
CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}
ANCHORS = {
    sre.AT_BEGINNING: Anchor.BEGIN,
    sre.AT_BEGINNING_STRING: Anchor.BEGIN,
    sre.AT_END: Anchor.LAST_LINE_END,
    sre.AT_END_STRING: Anchor.END,
}
OF_LINES = {sre.AT_BEGINNING: Anchor.LINE_BEGIN, sre.AT_END: Anchor.LINE_END}
OF_ECMA = {sre.AT_END: Anchor.END}
# What ends a line in ECMAScript, so that . matches none of them.
ECMA_LINE_ENDS = ranges_of((ord(c), ord(c)) for c in "\n\r\u2028\u2029")
REFUSED = {
    sre.ASSERT: "look-around",
    sre.ASSERT_NOT: "look-around",
    sre.GROUPREF: "a back-reference",
    sre.GROUPREF_EXISTS: "a condition on a group",
    sre.AT: "a word boundary",
}
# Of these flags, one holds at a time.
KINDS_OF_TEXT = sre.SRE_FLAG_ASCII | sre.SRE_FLAG_UNICODE
# Characters above it have no case.
LAST_CASED = 0x1FFFF


def require_short(text: str) -> None:
    """Raise a `UsageError` if a pattern, grammar or schema has too many characters."""
    short = len(text) <= MOST_CHARACTERS
    require(short, f"it has {len(text):,} characters, and at most {MOST_CHARACTERS:,} are read")


def parse(pattern: str, flags: int = 0) -> Any:
    """Parse a pattern with Python's own parser.

    Raises:
        UsageError: it is no pattern, or too large.
    """
    require_short(pattern)
    try:
        return parser.parse(pattern, flags)
    except re.error as error:
        raise UsageError(str(error)) from None
    except (RecursionError, OverflowError):
        raise UsageError("its groups or counts are nested too deeply, or too large") from None


class RegexReader:
    """Builder that adds regular expressions to a network.

    Args:
        network: to add to.
        ecma: what they match must match in ECMAScript too, where $ is the end of the text alone,
            . no end of a line, and classes such as \\d are of ASCII.
    """

    def __init__(self, network: CharacterNetwork, ecma: bool = False) -> None:
        self.network, self.ecma = network, ecma

    def add(self, place: int, pattern: str, flags: int = 0) -> int:
        """Add the texts that match a whole pattern from `place` to a new one.

        Raises:
            UsageError: it is no pattern, or has what no automaton can match, or is too large.
        """
        parsed = parse(pattern, flags)
        try:
            return self._sequence(parsed, place, parsed.state.flags)
        except RecursionError:
            raise UsageError("its groups are nested too deeply") from None

    def _sequence(self, items: Sequence, place: int, flags: int) -> int:
        """Add parsed items in order; `flags` of `re` apply."""
        for op, arg in items:
            place = self._item(op, arg, place, flags)
        return place

    def _item(self, op: Any, arg: Any, place: int, flags: int) -> int:
        if op is sre.BRANCH:
            after = self.network.place()
            for items in arg[1]:
                self.network.join(self._sequence(items, place, flags), after)
            return after
        if op is sre.SUBPATTERN:
            _, more, fewer, items = arg
            fewer |= KINDS_OF_TEXT & ~more if more & KINDS_OF_TEXT else 0
            return self._sequence(items, place, (flags | more) & ~fewer)
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            return self._repeat(*arg, place, flags)
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            return self.network.read(place, self._characters(op, arg, flags))
        if op is sre.AT and arg in ANCHORS:
            of_mode = OF_LINES if flags & sre.SRE_FLAG_MULTILINE else OF_ECMA if self.ecma else {}
            return self.network.anchor(place, of_mode.get(arg, ANCHORS[arg]))
        what = REFUSED.get(op, "an atomic group or a possessive count")
        raise UsageError(f"it has {what}, which an automaton cannot follow")

    def _characters(self, op: Any, arg: Any, flags: int) -> Ranges:
        if not self.ecma:
            return characters(op, arg, flags)
        ascii_only = sre.SRE_FLAG_ASCII
        found = common(*(characters(op, arg, f) for f in (flags | ascii_only, flags & ~ascii_only)))
        every = op is sre.ANY and not flags & sre.SRE_FLAG_DOTALL
        return common(found, inverse(ECMA_LINE_ENDS)) if every else found

    def _repeat(self, least: int, most: int, items: Sequence, place: int, flags: int) -> int:
        network = self.network
        for _ in range(least):
            place = self._sequence(items, place, flags)
        after = network.place()
        if most == sre.MAXREPEAT:
            network.join(place, after)
            network.join(self._sequence(items, after, flags), after)
            return after
        for _ in range(most - least):
            network.join(place, after)
            place = self._sequence(items, place, flags)
        network.join(place, after)
        return after


def add_pattern(network: CharacterNetwork, place: int, pattern: str) -> int:
    """Add a pattern from a place to a new one; see `RegexReader.add`."""
    return RegexReader(network).add(place, pattern)


def characters(op: Any, arg: Any, flags: int) -> Ranges:
    """List the characters that a one-character item matches."""
    case = flags & sre.SRE_FLAG_IGNORECASE
    if op is sre.ANY:
        every = flags & sre.SRE_FLAG_DOTALL
        return inverse(() if every else ((ord("\n"), ord("\n")),))
    if op in (sre.LITERAL, sre.NOT_LITERAL):
        found = _cased((arg, arg), flags) if case else ranges_of([(arg, arg)])
        return found if op is sre.LITERAL else inverse(found)
    negated = arg[0][0] is sre.NEGATE
    ranges: list[tuple[int, int]] = []
    for kind, value in arg[negated:]:
        if kind is sre.CATEGORY:
            ranges += _matched(CATEGORIES[value], flags & sre.SRE_FLAG_ASCII)
            continue
        low, high = (value, value) if kind is sre.LITERAL else value
        ranges += _cased((low, high), flags) if case else [(low, high)]
    found = ranges_of(ranges)
    return inverse(found) if negated else found


@functools.cache
def _every(last: int) -> str:
    """Build a string of all code points up to `last`, in order."""
    return np.arange(last + 1, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


@functools.cache
def _matched(text: str, flags: int, last: int = LAST) -> Ranges:
    """List the characters up to `last` that a character class matches, as `re` decides."""
    runs = re.compile(f"{text}+", flags).finditer(_every(last))
    return ranges_of((run.start(), run.end() - 1) for run in runs)


def _cased(ends: tuple[int, int], flags: int) -> Ranges:
    """Extend a range of characters by their other cases if `flags` ignore case."""
    low, high = map(chr, ends)
    text = f"[{re.escape(low)}-{re.escape(high)}]"
    of_case = flags & (sre.SRE_FLAG_IGNORECASE | sre.SRE_FLAG_ASCII)
    return ranges_of([ends, *_matched(text, of_case, LAST_CASED)])
