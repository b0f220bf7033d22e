"""Character-level network of a language, with recursive rules; input of the automaton."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from seqgen.plugins.patterns.anchors import Anchor, Context
from seqgen.plugins.patterns.time_limit import require_time
from seqgen.settings import require, shorten, why_not_utf8

# Inclusive ranges of code points, in order; none of them touch.
Ranges = tuple[tuple[int, int], ...]
At = TypeVar("At")
# The sequences of byte ranges by which characters are written.
Spelling = Callable[[Ranges], list[tuple[tuple[int, int], ...]]]
# A rule by its name, with the contexts in which it begins and ends if there are anchors.
Rule = str | tuple[str, Context, Context]
LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
# A larger network would take long to build: its pattern has counts such as (a{1000}){1000}.
MOST_PLACES = 100_000
# In the place of the next byte: the character is complete.
DONE = 0


def reached(starts: Iterable[At], following: Callable[[At], Iterable[At]]) -> set[At]:
    """Find everything reachable from the starts, including these."""
    found = set(starts)
    waiting = list(found)
    while waiting:
        new = set(following(waiting.pop())) - found
        found |= new
        waiting += new
    return found


def ranges_of(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort and join ranges of code points, and remove surrogates."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(without(ranges, SURROGATES)):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return tuple(joined)


def without(ranges: Iterable[tuple[int, int]], hole: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of code points with one range cut out."""
    for low, high in ranges:
        if low < hole[0]:
            yield low, min(high, hole[0] - 1)
        if high > hole[1]:
            yield max(low, hole[1] + 1), high


def inverse(ranges: Ranges) -> Ranges:
    """Compute the complement of ranges of code points."""
    lows = [0, *(high + 1 for _, high in ranges)]
    highs = [*(low - 1 for low, _ in ranges), LAST]
    return ranges_of((a, b) for a, b in zip(lows, highs, strict=True) if a <= b)


@functools.lru_cache(maxsize=1024)
def common(*several: Ranges) -> Ranges:
    """Compute the code points that all arguments have in common."""
    return inverse(ranges_of(hole for ranges in several for hole in inverse(ranges)))


def utf8(low: int, high: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield byte-range sequences that together are the UTF-8 of a range of code points."""
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


def plain(ranges: Ranges) -> list[tuple[tuple[int, int], ...]]:
    """Encode ranges of characters as UTF-8 byte ranges, without escapes."""
    return [sequence for low, high in ranges for sequence in utf8(low, high)]


class CharacterNetwork:
    """Network of places joined by characters, empty moves, anchors and calls of rules.

    A place is a number. `start` and `end` are those of the whole language, and a rule has its own
    two; a call goes to the start of a rule, and from its end back to where the call leads. A
    character is read byte by byte: `bytes_of[node]` lists ranges of bytes and the node after each,
    `DONE` where the character is complete.

    Args:
        backward: texts are written from their end to their beginning.
    """

    def __init__(self, backward: bool = False) -> None:
        self.backward = backward
        # Of each place: the characters that are read, how they are spelled, and the next place.
        self.reads: list[list[tuple[Ranges, Spelling, int]]] = []
        self.characters: list[list[tuple[int, int]]] = []  # when finished: (node, next place)
        self.empty: list[list[int]] = []
        self.anchors: list[list[tuple[Anchor, int]]] = []
        self.calls: list[list[tuple[Rule, int]]] = []  # (rule, place to return to)
        self.rules: dict[Rule, tuple[int, int]] = {}
        self.returns: dict[int, Rule] = {}
        self.last: set[int] = set()
        self.bytes_of: list[list[tuple[int, int, int]]] = [[]]
        self.single: list[str] = []  # characters that stand for themselves alone, in order
        self._nodes: dict[object, int] = {}
        self.start = self.place()
        self.end = self.start

    def place(self) -> int:
        """Create a new place.

        Raises:
            UsageError: there are too many.
        """
        few = len(self.empty) < MOST_PLACES
        require(few, f"it would take more than {MOST_PLACES:,} places; write smaller counts")
        require_time()
        for table in (self.reads, self.empty, self.calls, self.anchors):
            table.append([])
        return len(self.empty) - 1

    def join(self, place: int, other: int) -> None:
        """Add an empty move, without a character, from one place to another."""
        self.empty[place].append(other)

    def read(self, place: int, ranges: Ranges) -> int:
        """Add a move by any character of `ranges` from a place to a new one; return that."""
        after = self.place()
        if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
            self.single.append(chr(ranges[0][0]))
        if ranges:
            self.reads[place].append((ranges, plain, after))
        return after

    def anchor(self, place: int, anchor: Anchor) -> int:
        """Add an empty move under an anchor's condition from a place to a new one."""
        after = self.place()
        self.anchors[place].append((anchor, after))
        return after

    def write(self, place: int, text: str) -> int:
        """Add the characters of a text from a place to a new one.

        Raises:
            UsageError: UTF-8 cannot hold it.
        """
        why = why_not_utf8(text)
        require(why is None, f"{shorten(repr(text))} {why}")
        for character in text:
            place = self.read(place, ((ord(character),) * 2,))
        return place

    def call(self, place: int, rule: str) -> int:
        """Add a call of a rule from a place to a new one."""
        after = self.place()
        self.calls[place].append((rule, after))
        return after

    def _node_of(self, ranges: Ranges, spelling: Spelling) -> int:
        key = ranges, spelling
        if key not in self._nodes:
            sequences = [s[::-1] if self.backward else s for s in spelling(ranges)]
            self._nodes[key] = self._node(sequences)
        return self._nodes[key]

    def _node(self, sequences: Sequence[tuple[tuple[int, int], ...]]) -> int:
        """Build the node from which the byte sequences lead to `DONE`."""
        edges: list[tuple[int, int, int]] = []
        for first, group in groupby(sorted(sequences), key=lambda sequence: sequence[0]):
            rest = [sequence[1:] for sequence in group]
            longer = [sequence for sequence in rest if sequence]
            edges += [(*first, DONE)] if () in rest else []
            edges += [(*first, self._node(longer))] if longer else []
        key = tuple(edges), None
        if key not in self._nodes:
            self._nodes[key] = len(self.bytes_of)
            self.bytes_of.append(edges)
        return self._nodes[key]

    def follow_anchors(self) -> None:
        """Rewrite the network without anchors: each place is split by its context.

        A rule is written out for each two contexts in which it begins and ends.
        """
        used = {anchor for leads in self.anchors for anchor, _ in leads}
        if not used:
            return
        begin = Context.of_begin(used)
        ends = self._contexts_at_ends(begin)
        new = CharacterNetwork(self.backward)
        copies: dict[tuple[Rule | None, int, Context], int] = {(None, self.start, begin): new.start}
        waiting = list(copies)

        def copy(of: Rule | None, place: int, context: Context) -> int:
            key = of, place, context
            if key not in copies:
                copies[key] = new.place()
                waiting.append(key)
            return copies[key]

        while waiting:
            of, place, context = waiting.pop()
            here = copies[of, place, context]
            for ranges, spelling, after, then in self._leads(place, context):
                other = copy(of, after, then)
                if ranges:
                    new.reads[here].append((ranges, spelling, other))
                else:
                    new.join(here, other)
            for rule, after in self.calls[place]:
                start, end = self.rules[rule]
                for then in sorted(ends[rule, context]):
                    called = rule, context, then
                    new.rules[called] = copy(called, start, context), copy(called, end, then)
                    new.calls[here].append((called, copy(of, after, then)))
        new.end, new.single = new.place(), self.single
        for (of, place, _), here in copies.items():
            if of is None and place == self.end:
                new.join(here, new.end)
        self.__dict__ = new.__dict__

    def _leads(
        self, place: int, context: Context
    ) -> Iterator[tuple[Ranges, Spelling, int, Context]]:
        """Yield the moves from a place in a context, without calls."""
        yield from (((), plain, after, context) for after in self.empty[place])
        for anchor, after in self.anchors[place]:
            held = context.with_anchor(anchor)
            if held is not None:
                yield (), plain, after, held
        for allowed, then in context.steps():
            for ranges, spelling, after in self.reads[place]:
                met = common(ranges, allowed)
                if met:
                    yield met, spelling, after, then

    def _contexts_at_ends(self, begin: Context) -> dict[tuple[Rule, Context], set[Context]]:
        """Find the contexts in which each rule can end, by the context of its call."""
        ends: dict[tuple[Rule, Context], set[Context]] = {}

        def following(at: tuple[int, Context]) -> Iterator[tuple[int, Context]]:
            require_time()
            place, context = at
            yield from ((after, then) for *_, after, then in self._leads(place, context))
            for rule, after in self.calls[place]:
                yield from ((after, then) for then in ends.setdefault((rule, context), set()))

        known = None
        while known != ends:
            known = {called: set(contexts) for called, contexts in ends.items()}
            reached([(self.start, begin)], following)
            for rule, context in known:
                start, end = self.rules[rule]
                found = reached([(start, context)], following)
                ends[rule, context] |= {then for place, then in found if place == end}
        return ends

    def turn(self) -> None:
        """Reverse the network, for texts generated from right to left."""
        turned = CharacterNetwork.__new__(CharacterNetwork)
        turned.__dict__ |= self.__dict__
        turned.reads, turned.empty, turned.calls = ([[] for _ in self.empty] for _ in range(3))
        for place in range(len(self.empty)):
            for ranges, spelling, after in self.reads[place]:
                turned.reads[after].append((ranges, spelling, place))
            for after in self.empty[place]:
                turned.empty[after].append(place)
            for rule, after in self.calls[place]:
                turned.calls[after].append((rule, place))
        turned.start, turned.end = self.end, self.start
        turned.rules = {rule: (end, start) for rule, (start, end) in self.rules.items()}
        self.__dict__ = turned.__dict__

    def finish(self, end: int) -> CharacterNetwork:
        """Set the end of the language, and prepare the network for the automaton.

        Raises:
            UsageError: no text belongs to it, or a rule calls itself before it reads anything.
        """
        self.end = end
        self.follow_anchors()
        if self.backward:
            self.turn()
        self.characters = [
            [(self._node_of(ranges, spelling), after) for ranges, spelling, after in reads]
            for reads in self.reads
        ]
        self.returns = {last: rule for rule, (_, last) in self.rules.items()}
        self._check()
        # The places from which nothing more is read before a rule ends.
        self.last = {
            place
            for called in self.calls
            for _, place in called
            if self.rules
            for ahead in [self._reached(place, set(), True)]
            if not any(self.reads[at] or self.calls[at] for at in ahead)
            and ahead & self.returns.keys()
        }
        return self

    def _check(self) -> None:
        finite: set[Rule] = set()
        nullable: set[Rule] = set()
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
            name = rule if isinstance(rule, str) else rule[0]
            require(not again, f"the rule {name!r} {side} with itself by way of others")

    def _reached(self, start: int, passable: set[Rule], nothing_read: bool) -> set[int]:
        """Find the places reachable from `start`; calls of `passable` rules are skipped."""

        def following(place: int) -> list[int]:
            after = [after for rule, after in self.calls[place] if rule in passable]
            after += [after for *_, after in self.reads[place] if not nothing_read]
            return after + self.empty[place]

        return reached([start], following)
