"""The filter that keeps every text in a language: a pattern, a grammar, a JSON schema."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from seqgen.configs import require
from seqgen.decoding.continuation import DEAD_END, LIMIT
from seqgen.decoding.processors import IMPOSSIBLE, normalise, written
from seqgen.patterns.automaton import NEVER, Automaton

# States of texts that are remembered.
MOST_REMEMBERED = 10_000


class Constraint:
    """Allows a token only if what is left of `max_tokens` can complete the text.

    Where a text is complete, every token that leaves the language ends it, as does one that ends
    any text. `outcomes` makes one token of all of those, `end_id`, whose probability is their sum.

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
        self._endings: dict[int, np.ndarray] = {}

    @property
    def reasons(self) -> Mapping[int, str]:
        """Why a text ends that this filter has left."""
        dead = {} if self.dead_id is None else {self.dead_id: DEAD_END}
        return {self.end_id: "pattern", LIMIT: "pattern", **dead}

    def state(self, tokens: Sequence[int]) -> int:
        """Return the state after a row's tokens so far."""
        new = written(tokens)
        before = tokens[len(tokens) - len(new) - 1] if len(new) < len(tokens) else None
        start = self.automaton.start
        if before is None or before in self._fresh_after:
            start = self.automaton.fresh
        key = (start, *new)
        if key not in self._states:
            if len(self._states) > MOST_REMEMBERED:
                self._states.clear()
            state = self._states.get(key[:-1]) if new else start
            if state is None:
                state = start
                for token in new[:-1]:
                    state = int(self.automaton.after(state)[token])
            self._states[key] = int(self.automaton.after(state)[new[-1]]) if new else state
        return self._states[key]

    def endings(self, state: int) -> np.ndarray:
        """Return the tokens that end a text in a state: none if it is not complete."""
        if state not in self._endings:
            leaves = self.automaton.costs(state) == NEVER
            ending = leaves & self._may_end & self.automaton.accepts(state)
            self._endings[state] = np.flatnonzero(ending)
        return self._endings[state]

    def outcomes(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        """Return log-probabilities (B, V) in which one token has the probability of the end."""
        merged = log_probs.copy()
        for row, tokens in enumerate(history):
            ending = self.endings(self.state(tokens))
            merged[row, self.end_id] = IMPOSSIBLE
            if ending.size:
                merged[row, ending] = IMPOSSIBLE
                mass = np.exp(log_probs[row, ending], dtype=np.float64).sum()
                with np.errstate(divide="ignore"):
                    merged[row, self.end_id] = np.log(mass)
        return merged

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        kept = np.full_like(log_probs, IMPOSSIBLE)
        for row, tokens in enumerate(history):
            state = self.state(tokens)
            left = self.max_tokens - len(written(tokens))
            allowed = self.automaton.costs(state) < left
            np.copyto(kept[row], log_probs[row], where=allowed)
            if self.automaton.accepts(state):
                kept[row, self.end_id] = log_probs[row, self.end_id]
        possible = np.maximum.reduce(kept, -1) > IMPOSSIBLE  # (B,)
        if self.dead_id is not None:
            kept[~possible, self.dead_id] = 0.0
        elif not possible.all():
            kept[possible] = normalise(kept[possible])
            return kept
        return normalise(kept)
