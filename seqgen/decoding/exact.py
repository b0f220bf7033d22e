"""Texts of a form drawn with their true probabilities, where the future can be summed.

A mask knows what is possible later, not how probable it is. For an n-gram model the product of its
contexts with the states of the automaton is finite: the probability that a text is completed is
summed from its end backwards, for each pair and each number of tokens that are left. A token is
then drawn in proportion to its own probability times that of what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from seqgen.decoding.constraint import Constraint
from seqgen.decoding.processors import IMPOSSIBLE, normalise
from seqgen.errors import UsageError

# Tokens that are followed in the product of contexts, states and lengths, all in all.
MOST_EDGES = 1_000_000
Context = tuple[int, ...]


class Contexts(Protocol):
    """A model whose past is one of finitely many contexts."""

    def first(self) -> Context:
        """Return the context of no token."""

    def after(self, context: Context, token: int) -> Context:
        """Return the context after one more token."""

    def log_probs(self, context: Context) -> np.ndarray:
        """Return the log-probabilities of the next token, (V,)."""


class Product:
    """All that can follow a context under a constraint, and its probability.

    Args:
        constraint: of the form.
        model: the contexts.
        context: that of the prompt.
        state: of the automaton where the text begins.

    Attributes:
        log_probs: of each level, the log-probability that each pair of it is completed.

    Raises:
        UsageError: it is too large.
    """

    def __init__(
        self, constraint: Constraint, model: Contexts, context: Context, state: int
    ) -> None:
        numbers: dict[tuple[Context, int], int] = {(context, state): 0}
        # Of each level and pair: the tokens, the pairs after them, their log-probabilities, and
        # that of the end.
        self.levels: list[list[tuple[np.ndarray, np.ndarray, np.ndarray, float]]] = []
        edges = 0
        while numbers:
            left = constraint.max_tokens - len(self.levels)
            following: dict[tuple[Context, int], int] = {}
            level = []
            for pair_context, pair_state in numbers:
                row = model.log_probs(pair_context)
                place = constraint.limited(pair_state, left)
                tokens = np.flatnonzero(constraint.automaton.costs(pair_state) < left)
                tokens = tokens[row[tokens] > IMPOSSIBLE]
                edges += len(tokens)
                if edges > MOST_EDGES:
                    raise UsageError(
                        f"its contexts, states and lengths make more than {MOST_EDGES:,} steps; "
                        "use --pattern-mode resample, or a smaller --max-tokens"
                    )
                states = constraint.automaton.after(pair_state)[tokens].tolist()
                children = np.array(
                    [
                        following.setdefault((model.after(pair_context, t), s), len(following))
                        for t, s in zip(tokens.tolist(), states, strict=True)
                    ],
                    dtype=int,
                )
                ends = constraint.endings(place)
                end = np.logaddexp.reduce(row[ends], initial=IMPOSSIBLE) if left else 0.0
                level.append((tokens, children, row[tokens], float(end)))
            self.levels.append(level)
            numbers = following
        self.log_probs: list[np.ndarray] = [np.empty(0)]
        for level in reversed(self.levels):
            after = self.log_probs[0]
            sums = [
                np.logaddexp.reduce(np.append(own + after[children], end))
                for _, children, own, end in level
            ]
            self.log_probs.insert(0, np.array(sums))

    @property
    def log_prob(self) -> float:
        """The log-probability of the whole form."""
        return float(self.log_probs[0][0])


class Exact(Constraint):
    """A constraint that draws each token as the model would if it could only write the form."""

    model: Contexts

    @classmethod
    def of(cls, constraint: Constraint, model: Contexts) -> Exact:
        """Return the exact form of a constraint.

        Raises:
            UsageError: its rules call themselves.
        """
        if not constraint.automaton.regular:
            raise UsageError("its rules call themselves; use --pattern-mode resample")
        exact = cls.__new__(cls)
        exact.__dict__ |= constraint.__dict__
        exact.model, exact._products, exact._pairs = model, {}, {}
        return exact

    def product(self, prompt: tuple[int, ...]) -> Product:
        """Return what can follow the ids of a prompt."""
        context = self.model.first()
        for token in prompt:
            context = self.model.after(context, token)
        key = context, self.begin(prompt)
        if key not in self._products:
            self._products[key] = Product(self, self.model, *key)
        return self._products[key]

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        kept = np.full_like(log_probs, IMPOSSIBLE, dtype=np.float64)
        for row, tokens in enumerate(history):
            begin = getattr(tokens, "prompt", 0)
            product, pair = self.product(tuple(tokens[:begin])), 0
            for level, token in enumerate(tokens[begin:]):
                ids, children, *_ = product.levels[level][pair]
                pair = children[np.searchsorted(ids, token)]
            level = len(tokens) - begin
            ids, children, own, end = product.levels[level][pair]
            kept[row, ids] = own + product.log_probs[level + 1][children]
            kept[row, self.end_id] = end
        impossible = np.maximum.reduce(kept, -1) == IMPOSSIBLE
        kept[impossible, self.dead_id] = 0.0
        return normalise(kept)
