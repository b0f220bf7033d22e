"""Exact sampling of constrained texts, for models whose future can be summed.

A mask knows what is possible later, not how probable it is. For an n-gram model the product of its
contexts with the states of the automaton is finite: the probability that a text is completed is
summed from its end backwards, for each pair and each number of tokens that are left. A token is
then drawn in proportion to its own probability times that of what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from seqgen.errors import UsageError
from seqgen.generation.processors import IMPOSSIBLE, normalise_or_end
from seqgen.plugins.patterns.constraint import Constraint

# Tokens that are followed in the product of contexts, states and lengths, all in all.
MOST_EDGES = 1_000_000
TOO_LARGE = (
    f"its contexts, states and lengths make more than {MOST_EDGES:,} steps; use --pattern-mode "
    "resample, or a smaller --max-tokens"
)
Context = tuple[int, ...]


class ContextModel(Protocol):
    """Interface of a model whose history is one of finitely many contexts."""

    def first(self) -> Context:
        """Create the context before the first token."""

    def after(self, context: Context, token: int) -> Context:
        """Advance a context by one token."""

    def log_probs(self, context: Context) -> np.ndarray:
        """Compute the log-probabilities of the next token, (V,)."""


class ConstrainedModel:
    """Product of a model's contexts and a constraint's states, with completion probabilities.

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
        self, constraint: Constraint, model: ContextModel, context: Context, state: int
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
                    raise UsageError(TOO_LARGE)
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
        """Log-probability of the whole language."""
        return float(self.log_probs[0][0])


class Exact(Constraint):
    """Constraint that samples from the model's exact distribution over texts of the language."""

    model: ContextModel

    @classmethod
    def of(cls, constraint: Constraint, model: ContextModel) -> Exact:
        """Convert a constraint to an exact one.

        Raises:
            UsageError: its rules call themselves.
        """
        if not constraint.automaton.regular:
            raise UsageError("its rules call themselves; use --pattern-mode resample")
        exact = cls.__new__(cls)
        exact.__dict__ |= constraint.__dict__
        exact.model, exact._products, exact._pairs = model, {}, {}
        return exact

    def product(self, prompt: tuple[int, ...]) -> ConstrainedModel:
        """Build the product of model and constraint after a prompt; cached."""
        context = self.model.first()
        for token in prompt:
            context = self.model.after(context, token)
        key = context, self.begin(prompt)
        if key not in self._products:
            self._products[key] = ConstrainedModel(self, self.model, *key)
        return self._products[key]

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        kept = np.full_like(log_probs, IMPOSSIBLE, dtype=np.float64)
        for row, tokens in zip(kept, history, strict=True):
            self.enter(row, tokens, getattr(tokens, "prompt", 0))
        return normalise_or_end(kept, self.dead_id)

    def enter(self, row: np.ndarray, tokens: Sequence[int], begin: int) -> None:
        """Write exact next-token log-probabilities into a row (V,), after `begin` prompt tokens."""
        product, pair = self.product(tuple(tokens[:begin])), 0
        for level, token in enumerate(tokens[begin:]):
            ids, children, *_ = product.levels[level][pair]
            pair = children[np.searchsorted(ids, token)]
        level = len(tokens) - begin
        ids, children, own, end = product.levels[level][pair]
        row[ids] = own + product.log_probs[level + 1][children]
        row[self.end_id] = end


class HiddenStates(Protocol):
    """Interface of a hidden Markov model: `transition` (K, K), `emission` (K, V), and belief."""

    transition: np.ndarray
    emission: np.ndarray

    def belief(self, tokens: Sequence[int]) -> np.ndarray:
        """Compute the probability of each hidden state (K,) for the token after these."""


class HiddenProduct:
    """Product of hidden states, automaton states and lengths, with completion probabilities.

    The probability that a text is completed is linear in the belief, so that one vector is summed
    for each state and length, with a logarithm beside it that keeps it from becoming 0.

    Args:
        constraint: of the form.
        model: a hidden Markov model.
        belief: after the prompt.
        state: of the automaton where the text begins.

    Raises:
        UsageError: it is too large.
    """

    def __init__(
        self, constraint: Constraint, model: HiddenStates, belief: np.ndarray, state: int
    ) -> None:
        self.constraint, self.model, self.belief, self.state = constraint, model, belief, state
        levels, work = [{state}], 0
        while len(levels) <= constraint.max_tokens:
            left = constraint.max_tokens + 1 - len(levels)
            after = {s: self._after(s, left)[0] for s in levels[-1]}
            work += sum(map(len, after.values())) * len(belief)
            if work > MOST_EDGES:
                raise UsageError(TOO_LARGE)
            levels.append({other for others in after.values() for other in others.tolist()})
        self.levels: list[dict[int, tuple[np.ndarray, float]]] = [{} for _ in levels]
        for level in range(len(levels) - 1, -1, -1):
            for s in levels[level]:
                scores = self.scores(level, s)
                most = scores.max(initial=IMPOSSIBLE)
                most = most if most > IMPOSSIBLE else 0.0
                self.levels[level][s] = np.exp(scores - most).sum(1), float(most)

    @property
    def log_prob(self) -> float:
        """Log-probability of the whole language."""
        vector, scale = self.levels[0][self.state]
        with np.errstate(divide="ignore"):
            return float(np.log(self.belief @ vector)) + scale

    def _after(self, state: int, left: int) -> tuple[np.ndarray, np.ndarray]:
        """List the next automaton states, and mark the tokens (V,) that lead to any of them."""
        allowed = self.constraint.automaton.costs(state) < left
        return np.unique(self.constraint.automaton.after(state)[allowed]), allowed

    def scores(self, level: int, state: int) -> np.ndarray:
        """Compute log P(token, completed | hidden state), (K, V + 1); last column: the end."""
        left, automaton = self.constraint.max_tokens - level, self.constraint.automaton
        with np.errstate(divide="ignore"):
            scores = np.full((len(self.belief), self.model.emission.shape[1] + 1), IMPOSSIBLE)
            if left == 0:
                scores[:, -1] = 0.0 if automaton.accepts(state) else IMPOSSIBLE
                return scores
            others, allowed = self._after(state, left)
            for other in others.tolist():
                vector, scale = self.levels[level + 1][other]
                tokens = np.flatnonzero(allowed & (automaton.after(state) == other))
                ahead = np.log(self.model.transition @ vector) + scale  # (K,)
                scores[:, tokens] = np.log(self.model.emission[:, tokens]) + ahead[:, None]
            ends = self.constraint.endings(self.constraint.limited(state, left))
            scores[:, -1] = np.log(self.model.emission[:, ends].sum(1))
        return scores


class ExactHidden(Exact):
    """Exact constraint for a hidden Markov model."""

    model: HiddenStates

    def product(self, prompt: tuple[int, ...]) -> HiddenProduct:
        """Build the product of model and constraint after a prompt; cached."""
        if prompt not in self._products:
            belief, start = self.model.belief(prompt), self.begin(prompt)
            self._products[prompt] = HiddenProduct(self, self.model, belief, start)
        return self._products[prompt]

    def enter(self, row: np.ndarray, tokens: Sequence[int], begin: int) -> None:
        scores = self.product(tuple(tokens[:begin])).scores(len(tokens) - begin, self.state(tokens))
        with np.errstate(divide="ignore"):
            joint = scores + np.log(self.model.belief(tokens))[:, None]
        totals = np.logaddexp.reduce(joint, axis=0)
        row[:], row[self.end_id] = totals[:-1], totals[-1]
