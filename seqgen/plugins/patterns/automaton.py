"""Token-level automaton of a language: the state after each token, and the tokens to the end.

A state is the set of places in the network where a text may stand, with the places that open calls
return to (subset construction; the stacks of llama.cpp's grammars). States are numbered as they are
met, and everything that is found about one is kept. State 0 has no place: the text is lost.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from seqgen.plugins.patterns.network import DONE, CharacterNetwork, reached
from seqgen.plugins.patterns.time_limit import require_time
from seqgen.settings import require

LOST = 0
# In the place of a call: the rule is walked by itself, and what it calls is left out.
ALONE = -1
# In the place of a node: the thread waits for a rule that is called.
WAITS = -1
UNKNOWN = -1
NEVER = 1 << 30
# States whose costs are worked out before anything is written, and the work that this may take, in
# states times nodes of the vocabulary. Both bound the time of a hostile pattern to seconds.
MOST_STATES, MOST_WORK = 20_000, 200_000_000
# Places in all those states together, which the work of finding them grows with.
MOST_THREADS = 2_000_000
# Entries of each table of states by tokens that are kept, of four bytes each.
MOST_KEPT = 1 << 23
# A grammar's text may stand in so many places at once, and in so many open calls.
MOST_PLACES, MOST_DEPTH = 10_000, 1_000

# A node of UTF-8 in which a character stands, the place after it, and the open calls.
Thread = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Trie of the bytes of all tokens, traversed one level at a time.

    Attributes:
        parents: (N,) the parent of each node, a level at a time; the root is its own.
        last_bytes: (N,) the byte that leads from the parent to the node.
        begins: (L + 1,) where each level begins, and where the last one ends.
        node_of: (V,) the node of each token; 0 for one that is never part of a text.
        backward: tokens come from the end of a text to its beginning.
    """

    parents: np.ndarray
    last_bytes: np.ndarray
    begins: np.ndarray
    node_of: np.ndarray
    backward: bool = False

    @classmethod
    def of(cls, spelled: Sequence[bytes | None], backward: bool = False) -> Vocabulary:
        """Build the trie of some tokens.

        Args:
            spelled: the bytes of each token; None or empty for one that is never part of a text.
            backward: tokens come from the end of a text to its beginning.
        """
        nodes: dict[bytes, int] = {b"": 0}
        tokens = [(text or b"")[::-1] if backward else text or b"" for text in spelled]
        by_length: dict[int, set[bytes]] = {}
        for text in set(tokens):
            for end in range(1, len(text) + 1):
                by_length.setdefault(end, set()).add(text[:end])
        parents, last_bytes, begins = [0], [0], [1]
        for length in sorted(by_length):
            for prefix in sorted(by_length[length]):
                parents.append(nodes[prefix[:-1]])
                last_bytes.append(prefix[-1])
                nodes[prefix] = len(nodes)
            begins.append(len(nodes))
        node_of = np.array([nodes[text] for text in tokens], np.int32)
        bytes_of = np.array(last_bytes, np.uint8)
        return cls(np.array(parents, np.int32), bytes_of, np.array(begins), node_of, backward)

    @cached_property
    def levels(self) -> list[tuple[int, int]]:
        """The nodes of each level but the root's, as ranges."""
        return list(pairwise(self.begins.tolist()))

    @cached_property
    def spells(self) -> np.ndarray:
        """Mask of the tokens (V,) that may be part of a text."""
        return self.node_of > 0

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.parents)


class Automaton:
    """Automaton over tokens, built lazily from a character network and a vocabulary.

    Args:
        network: finished.
        vocabulary: in the same direction.
        first: the same tokens where they begin a line, if they then stand for other bytes.

    Attributes:
        start: the state before the first token.
        fresh: the same where that token begins a line.

    Raises:
        UsageError: it has too many states, or the vocabulary can spell no text of it.
    """

    def __init__(
        self, network: CharacterNetwork, vocabulary: Vocabulary, first: Vocabulary | None = None
    ) -> None:
        self.network, self.vocabulary, self._first = network, vocabulary, first
        edges = sorted({b for node in network.bytes_of for a, c, _ in node for b in (a, c + 1)})
        # Bytes that no node tells apart are of one class.
        self._class_of = np.searchsorted(edges, np.arange(257), side="right")
        self._table = np.full((64, int(self._class_of.max()) + 1), UNKNOWN)
        self._states: dict[tuple[frozenset[Thread], bool], int] = {}
        self._threads: list[frozenset[Thread]] = []
        self._accepts: list[bool] = []
        self._calls: list[tuple[int, int]] = [(-1, -1)]  # place to return to, the call around it
        self._depths = [0]
        self._numbers: dict[tuple[int, int], int] = {}
        self._closures: dict[tuple[int, int], tuple[frozenset[Thread], bool]] = {}
        self._after: dict[int, np.ndarray] = {}
        self._costs: dict[int, np.ndarray] = {}
        self._state((frozenset(), False))
        self._table[LOST] = LOST
        self.start = self.fresh = self._state(self._closure(network.start, 0))
        if first is not None:
            self._threads.append(self._threads[self.start])
            self._accepts.append(self._accepts[self.start])
            self.fresh = len(self._threads) - 1
        self._cost_of: dict[int, int] = {LOST: NEVER}
        self._solve()

    @property
    def regular(self) -> bool:
        """True if no rule calls itself, so that the states are finitely many."""
        return not self.network.rules

    def accepts(self, state: int) -> bool:
        """Check whether the text is complete in a state."""
        return self._accepts[state]

    def after(self, state: int) -> np.ndarray:
        """Compute the state after each token, (V,)."""
        if state not in self._after:
            if len(self._after) * self.vocabulary.node_of.size > MOST_KEPT:
                self._after.clear()
            self._after[state] = self._walk(state).astype(np.int32)
        return self._after[state]

    def costs(self, state: int) -> np.ndarray:
        """Compute the tokens still needed after each token, (V,); `NEVER` if no text can follow."""
        if state not in self._costs:
            if len(self._costs) * self.vocabulary.node_of.size > MOST_KEPT:
                self._costs.clear()
            after, places = np.unique(self.after(state), return_inverse=True)
            costs = np.array([self.cost(int(other)) for other in after], dtype=np.int32)
            self._costs[state] = costs[places.reshape(-1)]
        return self._costs[state]

    def cost(self, state: int) -> int:
        """Compute the fewest tokens that complete a text from a state; `NEVER` if none can.

        It is the least number there is, but for rules that call themselves: there it is the least
        of the texts in which no token crosses the beginning or the end of such a rule.
        """
        if state not in self._cost_of:
            cost = 0 if self._accepts[state] else NEVER
            if state == self.fresh != self.start:
                return min(cost, 1 + min(map(self.cost, np.unique(self.after(state)).tolist())))
            for node, place, call in self._threads[state] if cost else ():
                of_thread = self._cost_of[self._state(_alone(node, place))]
                while call:
                    place, call = self._calls[call]
                    of_thread += self._cost_of[self._state(self._closure(place, ALONE))]
                cost = min(cost, of_thread)
            self._cost_of[state] = cost
        return self._cost_of[state]

    def _state(self, content: tuple[frozenset[Thread], bool]) -> int:
        number = self._states.setdefault(content, len(self._threads))
        if number == len(self._threads):
            few = len(content[0]) <= MOST_PLACES
            ways = f"more than {MOST_PLACES:,} ways to read the start of one text"
            require(few, f"it is too ambiguous: there are {ways}; make its rules overlap less")
            self._threads.append(content[0])
            self._accepts.append(content[1])
            if number == len(self._table):
                self._table = np.concatenate([self._table, np.full_like(self._table, UNKNOWN)])
        return number

    def _closure(self, place: int, call: int) -> tuple[frozenset[Thread], bool]:
        """Follow all moves without a character from a place; also check whether a text may end."""
        known = self._closures.get((place, call))
        if known is not None:
            return known
        require_time()
        network, threads, accepts = self.network, set(), False
        seen, waiting = {(place, call)}, [(place, call)]
        while waiting:
            here, around = waiting.pop()
            threads.update((node, after, around) for node, after in network.characters[here])
            following = [(after, around) for after in network.empty[here]]
            if around == ALONE:
                threads.update((WAITS, here, ALONE) for _ in network.calls[here])
                accepts |= here == network.end or here in network.returns
            else:
                for rule, after in network.calls[here]:
                    inner = self._called(after, around)
                    if inner is not None:
                        following.append((network.rules[rule][0], inner))
                if around and here in network.returns:
                    following.append(self._calls[around])
                accepts |= here == network.end and not around
            for other in following:
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        found = self._closures[place, call] = frozenset(threads), accepts
        return found

    def _called(self, place: int, around: int) -> int | None:
        """Number a call that returns to `place`; None if calls are nested too deeply."""
        if around and place in self.network.last:
            return around  # nothing comes between its end and that of the rule around it
        key = place, around
        if key not in self._numbers:
            if self._depths[around] == MOST_DEPTH:
                return None
            self._numbers[key] = len(self._calls)
            self._calls.append(key)
            self._depths.append(self._depths[around] + 1)
        return self._numbers[key]

    def _fill(self, state: int) -> None:
        """Fill in a row of the transition table: the next state for each class of bytes."""
        require_time()
        threads_at: dict[int, set[Thread]] = {}
        ends: set[int] = set()
        for node, after, call in self._threads[state]:
            if node == WAITS:
                continue
            for low, high, following in self.network.bytes_of[node]:
                threads: Iterable[Thread] = ((following, after, call),)
                accepts = False
                if following == DONE:
                    threads, accepts = self._closure(after, call)
                for place in range(self._class_of[low], self._class_of[high] + 1):
                    threads_at.setdefault(place, set()).update(threads)
                    if accepts:
                        ends.add(place)
        row = np.zeros(self._table.shape[1], dtype=int)
        for place, threads in threads_at.items():
            row[place] = self._state((frozenset(threads), place in ends))
        self._table[state] = row

    def _walk(self, state: int) -> np.ndarray:
        trie = self.vocabulary if state == self.start or state != self.fresh else self._first
        states = np.zeros(trie.size, dtype=int)  # at each node of the trie
        states[0] = state
        for begin, end in trie.levels:
            before = states[trie.parents[begin:end]]
            classes = self._class_of[trie.last_bytes[begin:end]]
            following = self._table[before, classes]
            missing = following == UNKNOWN
            if missing.any():
                for other in np.unique(before[missing]):
                    self._fill(int(other))
                following = self._table[before, classes]
            if not following.any():
                break
            states[begin:end] = following
        return np.where(trie.spells, states[trie.node_of], LOST)

    def _solve(self) -> None:
        """Compute the cost of every reachable state, those nearest to an end first.

        If rules call themselves, there is no end of states. Then it is found for every rule alone.
        """
        network = self.network
        seeds = [self.start, self.fresh]
        calls: dict[int, list[tuple[int, int]]] = {}  # a place: (state of the rule, state after it)
        if network.rules:
            read = {(node, after) for edges in network.characters for node, after in edges}
            within = reached(
                read, lambda at: ((n, at[1]) for *_, n in network.bytes_of[at[0]] if n != DONE)
            )
            seeds = [self._state(_alone(*thread)) for thread in sorted(within)]
            for place, called in enumerate(network.calls):
                starts = [(network.rules[rule][0], after) for rule, after in called]
                calls[place] = [
                    tuple(self._state(self._closure(at, ALONE)) for at in ends) for ends in starts
                ]
            seeds += [state for pairs in calls.values() for pair in pairs for state in pair]
            seeds.append(self._state(self._closure(network.start, ALONE)))
        before: dict[int, list[int]] = {state: [] for state in seeds}
        waiting, threads = list(before), 0
        while waiting:
            require_time()
            state = waiting.pop()
            threads += len(self._threads[state])
            for after in np.flatnonzero(np.bincount(self.after(state))).tolist():
                if after not in before:
                    before[after] = []
                    waiting.append(after)
                before[after].append(state)
            few = len(before) <= MOST_STATES and len(before) * self.vocabulary.size <= MOST_WORK
            few &= threads <= MOST_THREADS
            require(few, f"it has more than {len(before) - 1:,} states; write a simpler one")
        # Dijkstra's algorithm; what a call costs is known when its rule and what follows it are.
        users: dict[int, list[tuple[int, int, int]]] = {}
        for state in before:
            for node, place, _ in self._threads[state]:
                for rule, after in calls.get(place, ()) if node == WAITS else ():
                    users.setdefault(rule, []).append((state, rule, after))
                    users.setdefault(after, []).append((state, rule, after))
        queue = [(0, state) for state in before if self._accepts[state]]
        known = self._cost_of
        while queue:
            cost, state = heapq.heappop(queue)
            if state in known:
                continue
            known[state] = cost
            for other in before[state]:
                if other not in known:
                    heapq.heappush(queue, (cost + 1, other))
            for other, rule, after in users.get(state, ()):
                if other not in known and rule in known and after in known:
                    heapq.heappush(queue, (known[rule] + known[after], other))
        self._cost_of = {**dict.fromkeys(before, NEVER), **known}


def _alone(node: int, place: int) -> tuple[frozenset[Thread], bool]:
    """Build the state of a single thread inside a rule, regardless of its caller."""
    return frozenset({(node, place, ALONE)}), False
