"""A language as a network of characters, which may call itself, for the automaton to walk."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from itertools import groupby
from typing import TypeVar

from seqgen.settings import no_text, require, short

# Inclusive ranges of code points, in order; none of them touch.
Ranges = tuple[tuple[int, int], ...]
At = TypeVar("At")
LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
# A larger network would take long to build: its pattern has counts such as (a{1000}){1000}.
MOST_PLACES = 100_000
# In the place of the next byte: the character is complete.
DONE = 0
# When this thread gives a pattern up, in its own processor time.
_gives_up: ContextVar[float] = ContextVar("gives_up", default=math.inf)


@contextlib.contextmanager
def seconds_at_most(seconds: float) -> Iterator[None]:
    """Refuse patterns that take more of this thread's processor time to prepare."""
    before = _gives_up.set(time.thread_time() + seconds)
    try:
        yield
    finally:
        _gives_up.reset(before)


def require_time() -> None:
    """Raise a `UsageError` if that time has passed."""
    limit = _gives_up.get()
    require(
        limit == math.inf or time.thread_time() < limit, "it takes too long; write a simpler one"
    )


def reached(starts: Iterable[At], following: Callable[[At], Iterable[At]]) -> set[At]:
    """Return what some lead to, step by step, and these themselves."""
    found = set(starts)
    waiting = list(found)
    while waiting:
        new = set(following(waiting.pop())) - found
        found |= new
        waiting += new
    return found


def ranges_of(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ranges of code points in order, joined where they touch, without surrogates."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(without(ranges, SURROGATES)):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return tuple(joined)


def without(ranges: Iterable[tuple[int, int]], hole: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield what is left of ranges without one of them."""
    for low, high in ranges:
        if low < hole[0]:
            yield low, min(high, hole[0] - 1)
        if high > hole[1]:
            yield max(low, hole[1] + 1), high


def inverse(ranges: Ranges) -> Ranges:
    """Return all other code points."""
    lows = [0, *(high + 1 for _, high in ranges)]
    highs = [*(low - 1 for low, _ in ranges), LAST]
    return ranges_of((a, b) for a, b in zip(lows, highs, strict=True) if a <= b)


def utf8(low: int, high: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield sequences of byte ranges that together are the UTF-8 of a range of code points."""
    cuts = [limit + 1 for limit in (0x7F, 0x7FF, 0xFFFF) if low <= limit < high]
    for bits in (6, 12, 18):
        mask = (1 << bits) - 1
        if not cuts and high > 0x7F and low >> bits != high >> bits:
            if low & mask:
                cuts = [(low | mask) + 1]
            elif high & mask != mask:
                cuts = [high & ~mask]
    if cuts:
        yield from utf8(low, cuts[0] - 1)
        yield from utf8(cuts[0], high)
    else:
        yield tuple(zip(chr(low).encode(), chr(high).encode(), strict=True))


class CharacterNetwork:
    """Places, and what leads from one to the next: characters, nothing, or a call of a rule.

    A place is a number. `start` and `end` are those of the whole language, and a rule has its own
    two; a call goes to the start of a rule, and from its end back to where the call leads. A
    character is read byte by byte: `bytes_of[node]` lists ranges of bytes and the node after each,
    `DONE` where the character is complete.

    Args:
        backward: texts are written from their end to their beginning.
    """

    def __init__(self, backward: bool = False) -> None:
        self.backward = backward
        self.characters: list[list[tuple[int, int]]] = []  # of each place: (node, next place)
        self.empty: list[list[int]] = []
        self.calls: list[list[tuple[str, int]]] = []  # (rule, place to return to)
        self.rules: dict[str, tuple[int, int]] = {}
        self.returns: dict[int, str] = {}
        self.last: set[int] = set()
        self.bytes_of: list[list[tuple[int, int, int]]] = [[]]
        self.single: list[str] = []  # characters that stand for themselves alone, in order
        self._nodes: dict[object, int] = {(): DONE}
        self.start = self.place()
        self.end = self.start

    def place(self) -> int:
        """Return a new place.

        Raises:
            UsageError: there are too many.
        """
        few = len(self.empty) < MOST_PLACES
        require(few, f"it would take more than {MOST_PLACES:,} places; write smaller counts")
        require_time()
        for table in (self.characters, self.empty, self.calls):
            table.append([])
        return len(self.empty) - 1

    def join(self, place: int, other: int) -> None:
        """Lead from one place to another without a character."""
        self.empty[place].append(other)

    def read(self, place: int, ranges: Ranges) -> int:
        """Lead from a place to a new one by any character of `ranges`; return the new one."""
        after = self.place()
        if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
            self.single.append(chr(ranges[0][0]))
        if ranges:
            self.characters[place].append((self._node_of(ranges), after))
        return after

    def write(self, place: int, text: str) -> int:
        """Lead from a place to a new one by the characters of a text.

        Raises:
            UsageError: UTF-8 cannot hold it.
        """
        why = no_text(text)
        require(why is None, f"{short(repr(text))} {why}")
        for character in text:
            place = self.read(place, ((ord(character),) * 2,))
        return place

    def call(self, place: int, rule: str) -> int:
        """Lead from a place to a new one by what a rule describes."""
        after = self.place()
        self.calls[place].append((rule, after))
        return after

    def _node_of(self, ranges: Ranges) -> int:
        if ranges not in self._nodes:
            sequences = [s[::-1] if self.backward else s for r in ranges for s in utf8(*r)]
            self._nodes[ranges] = self._node(sequences)
        return self._nodes[ranges]

    def _node(self, sequences: Sequence[tuple[tuple[int, int], ...]]) -> int:
        """Return the node from which the bytes of any of the sequences lead to `DONE`."""
        if sequences[0] == ():
            return DONE
        tails = groupby(sorted(sequences), key=lambda sequence: sequence[0])
        edges = [(*first, self._node([s[1:] for s in group])) for first, group in tails]
        key = tuple(edges), None
        if key not in self._nodes:
            self._nodes[key] = len(self.bytes_of)
            self.bytes_of.append(edges)
        return self._nodes[key]

    def turn(self) -> None:
        """Turn a network of characters and calls round, for texts written backward."""
        turned = CharacterNetwork.__new__(CharacterNetwork)
        turned.__dict__ |= self.__dict__
        turned.characters, turned.empty, turned.calls = ([[] for _ in self.empty] for _ in range(3))
        for place in range(len(self.empty)):
            for node, after in self.characters[place]:
                turned.characters[after].append((node, place))
            for after in self.empty[place]:
                turned.empty[after].append(place)
            for rule, after in self.calls[place]:
                turned.calls[after].append((rule, place))
        turned.start, turned.end = self.end, self.start
        turned.rules = {rule: (end, start) for rule, (start, end) in self.rules.items()}
        self.__dict__ = turned.__dict__

    def finish(self, end: int) -> CharacterNetwork:
        """Say where the language ends; return the network, ready to be walked.

        Raises:
            UsageError: no text belongs to it, or a rule calls itself before it reads anything.
        """
        self.end = end
        if self.backward:
            self.turn()
        self.returns = {last: rule for rule, (_, last) in self.rules.items()}
        self._check()
        # The places from which nothing more is read before a rule ends.
        self.last = {
            place
            for called in self.calls
            for _, place in called
            if self.rules
            for ahead in [self._reached(place, set(), True)]
            if not any(self.characters[at] or self.calls[at] for at in ahead)
        }
        return self

    def _check(self) -> None:
        finite: set[str] = set()
        nullable: set[str] = set()
        for known, needs_text in ((finite, False), (nullable, True)):
            grown = -1
            while grown < len(known):
                grown = len(known)
                for rule, (start, end) in self.rules.items():
                    if rule not in known and end in self._reached(start, known, needs_text):
                        known.add(rule)
        no_text = self.end not in self._reached(self.start, finite, False)
        require(not no_text, "no text belongs to it")
        first = {
            rule: {
                called
                for place in self._reached(start, nullable, True)
                for called, _ in self.calls[place]
            }
            for rule, (start, _) in self.rules.items()
        }
        side = "ends" if self.backward else "begins"
        for rule, called in first.items():
            again = rule in reached(called, first.__getitem__)
            require(not again, f"the rule {rule!r} {side} with itself by way of others")

    def _reached(self, start: int, passable: set[str], nothing_read: bool) -> set[int]:
        """Return the places that can be reached from `start`; calls of `passable` rules pass."""

        def following(place: int) -> list[int]:
            after = [after for rule, after in self.calls[place] if rule in passable]
            after += [after for _, after in self.characters[place] if not nothing_read]
            return after + self.empty[place]

        return reached([start], following)
