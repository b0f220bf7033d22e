"""Token filter that keeps texts within a language: a pattern, a grammar or a JSON schema."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from seqgen.generation.constraint import TextConstraint
from seqgen.generation.continuation import DEAD_END, LIMIT
from seqgen.generation.processors import IMPOSSIBLE, History, normalise_or_end
from seqgen.plugins.patterns.automaton import LOST, MOST_KEPT, NEVER, Automaton
from seqgen.settings import require

# States of texts that are remembered.
MOST_REMEMBERED = 10_000


class Constraint(TextConstraint):
    """Filter of tokens after which the text can still be completed within `max_tokens`.

    Where a text is complete, every other token ends it, as does one that ends any text. `outcomes`
    makes one token of all of those, `end_id`, whose probability is their sum.

    Args:
        automaton: of the language.
        max_tokens: at most so many tokens of a text.
        end_id: the token that stands for the end.
        ends: the tokens that end any text.
        never: the tokens that are never written. They neither go on nor end a text.
        fresh_after: the tokens after which a line begins, as it does after none.
        dead_id: the token that ends a text that cannot go on; None to leave it no token.

    Raises:
        UsageError: no text of the language has so few tokens.
    """

    name = "pattern"

    def __init__(
        self,
        automaton: Automaton,
        max_tokens: int,
        end_id: int,
        ends: Collection[int],
        never: Collection[int],
        fresh_after: Collection[int] = (),
        dead_id: int | None = None,
    ) -> None:
        self.automaton, self.max_tokens, self._fresh_after = automaton, max_tokens, fresh_after
        self.end_id, self.dead_id = end_id, dead_id
        least = min(automaton.cost(automaton.start), automaton.cost(automaton.fresh))
        require(
            least <= max_tokens,
            f"a text of it has at least {least:,} tokens, and --max-tokens is {max_tokens:,}",
        )
        # Where a text is complete, one of these stands for its end.
        self.never = tuple(i for i in never if i != end_id)
        self._may_end = np.ones(automaton.vocabulary.node_of.size, dtype=bool)  # (V,)
        self._may_end[[i for i in never if i not in ends]] = False
        self._states: dict[tuple[int, ...], int] = {}
        self._longest: dict[int, int] = {}
        self._endings: dict[tuple[int, int], np.ndarray] = {}
        self._masks: dict[tuple[int, int], np.ndarray] = {}

    @property
    def reasons(self) -> Mapping[int, str]:
        """Finish reasons by the token that ends a text under this filter."""
        dead = {} if self.dead_id is None else {self.dead_id: DEAD_END}
        return {self.end_id: "pattern", LIMIT: "pattern", **dead}

    def state(self, tokens: Sequence[int]) -> int:
        """Compute the automaton state after a row's tokens so far."""
        begin = getattr(tokens, "prompt", 0)
        # A row that grows remembers the state before its last token.
        owner, last, state = getattr(tokens, "state", (None, 0, LOST))
        if owner is not self or last != len(tokens):
            if owner is self and last == len(tokens) - 1:
                state = int(self.automaton.after(state)[tokens[-1]])
            else:
                state = self._from_start(tokens, begin)
            if isinstance(tokens, History):
                tokens.state = self, len(tokens), state
        return state

    def can_begin(self, tokens: Sequence[int]) -> bool:
        """Check whether a text of the language can begin with these tokens."""
        left, automaton = self.max_tokens - len(tokens), self.automaton
        for state in (automaton.start, automaton.fresh):
            for token in tokens:
                state = int(automaton.after(state)[token])
            if automaton.cost(state) <= left:
                return True
        return False

    def begin(self, prompt: Sequence[int]) -> int:
        """Choose the start state of a text after the ids of a prompt."""
        fresh = not prompt or prompt[-1] in self._fresh_after
        return self.automaton.fresh if fresh else self.automaton.start

    def _from_start(self, tokens: Sequence[int], begin: int) -> int:
        start = self.begin(tokens[:begin])
        key = (start, *tokens[begin:])
        if key not in self._states:
            if len(self._states) > MOST_REMEMBERED:
                self._states.clear()
            state, place = self._states.get(key[:-1], start), len(key) - 1
            if key[:-1] not in self._states:
                place = 1
            for token in key[place:] if len(key) > 1 else ():
                state = int(self.automaton.after(state)[token])
            self._states[key] = state
        return self._states[key]

    def place(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Compute the state after a row's tokens, and how many tokens may still follow.

        A number that allows everything is as good as any larger one, and is given for it.
        """
        left = self.max_tokens - len(tokens) + getattr(tokens, "prompt", 0)
        return self.limited(self.state(tokens), left)

    def limited(self, state: int, left: int) -> tuple[int, int]:
        """Cap a number of remaining tokens at the most that matters in a state; see `place`."""
        if state not in self._longest:
            costs = self.automaton.costs(state)
            self._longest[state] = int(costs[costs < NEVER].max(initial=-1)) + 1
        return state, min(left, self._longest[state])

    def endings(self, place: tuple[int, int]) -> np.ndarray:
        """List the tokens that end a text at a place; empty if the text is incomplete."""
        if place not in self._endings:
            state, left = place
            leaves = self.automaton.costs(state) >= left
            ending = leaves & self._may_end & self.automaton.accepts(state)
            self._endings[place] = np.flatnonzero(ending)
        return self._endings[place]

    def outcomes(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        """Merge all ending tokens into one outcome in log-probabilities (B, V)."""
        endings = [self.endings(self.place(tokens)) for tokens in history]
        if not any(ending.size for ending in endings):
            return log_probs
        merged = log_probs.copy()
        for row, ending in enumerate(endings):
            if ending.size:
                mass = np.exp(log_probs[row, ending], dtype=np.float64).sum()
                merged[row, ending] = IMPOSSIBLE
                with np.errstate(divide="ignore"):
                    merged[row, self.end_id] = np.log(mass)
        return merged

    def _mask(self, place: tuple[int, int]) -> np.ndarray:
        """Compute 0 for each allowed token at a place and -inf for the others, (V,)."""
        if place not in self._masks:
            state, left = place
            allowed = self.automaton.costs(state) < left
            mask = np.where(allowed, np.float32(0), np.float32(IMPOSSIBLE))
            mask[self.end_id] = 0 if self.endings(place).size else IMPOSSIBLE
            if len(self._masks) * mask.size > MOST_KEPT:
                self._masks.clear()
            self._masks[place] = mask
        return self._masks[place]

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        masks = [self._mask(self.place(tokens)) for tokens in history]
        kept = log_probs + (masks[0] if len(masks) == 1 else np.array(masks))
        return normalise_or_end(kept, self.dead_id)
