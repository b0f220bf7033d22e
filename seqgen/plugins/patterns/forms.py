"""Constraints on a model's tokens, built from a pattern, a grammar or a JSON schema."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from seqgen.errors import SeqgenError, UsageError, reporting_unreadable
from seqgen.generation.processors import normalise
from seqgen.generation.token_bytes import end_and_dead_end
from seqgen.models.ngram.arrays import NGramArrays
from seqgen.plugins.patterns.automaton import NEVER, Automaton, Vocabulary
from seqgen.plugins.patterns.constraint import Constraint
from seqgen.plugins.patterns.exact import Exact, ExactHidden
from seqgen.plugins.patterns.grammar import add_grammar
from seqgen.plugins.patterns.json_schema import add_schema
from seqgen.plugins.patterns.network import CharacterNetwork
from seqgen.plugins.patterns.regex import add_pattern
from seqgen.plugins.patterns.vocabularies import vocabularies
from seqgen.settings import require
from seqgen.store.loaded import LoadedModel
from seqgen.text.tokenizers import Tokenizer


def constraint_of(
    loaded: LoadedModel, flag: str, text: str, max_tokens: int, dead_id: int | None
) -> Constraint:
    """Build the constraint that a flag and its value ask for.

    Args:
        loaded: the model.
        flag: that asks for it.
        text: the pattern, or the grammar's or schema's file; or the schema itself.
        max_tokens: at most so many tokens of a text.
        dead_id: the token that ends a text that cannot go on; None to leave it no token.

    Raises:
        UsageError: the form cannot be read, or the model cannot write a text of it; says why.
    """
    if flag != "--pattern" and not (flag == "--json-schema" and text.startswith("{")):
        text = content(text)
    return constraint_for(loaded, flag, text, max_tokens, dead_id, said=flag)


def constraint_for(
    loaded: LoadedModel, kind: str, text: str, max_tokens: int, dead_id: int | None, said: str
) -> Constraint:
    """Build a model's constraint; `said` names its pattern or file in error messages."""
    ids = frozenset(loaded.never), frozenset(loaded.framing.stops)
    try:
        return _constraint(loaded.tokenizer, kind, text, max_tokens, dead_id, *ids, loaded.backward)
    except UsageError as error:
        raise UsageError(f"{said}: {error}") from None


class NGramContexts:
    """Contexts of an n-gram model; histories that it cannot distinguish share one."""

    def __init__(self, model: NGramArrays) -> None:
        self._model = model

    def first(self) -> tuple[int, ...]:
        """Create the context before the first token."""
        return (-1,) * (self._model.order - 1)

    def after(self, context: tuple[int, ...], token: int) -> tuple[int, ...]:
        """Advance a context by one token."""
        return tuple(self._model.steps.after(context, token))

    def log_probs(self, context: tuple[int, ...]) -> np.ndarray:
        """Compute the log-probabilities of the next token, (V,) in float64."""
        return normalise(self._model.steps.row(context).astype(np.float64))


@runtime_checkable
class HiddenMarkovModel(Protocol):
    """Hidden Markov model over arrays, with its tables (K, K) and (K, V)."""

    transition: np.ndarray
    emission: np.ndarray

    def start(self, batch: int) -> Any:
        """Open a state, whose `predicted` (B, K) are log-probabilities of the hidden state."""

    def __call__(self, tokens: np.ndarray, state: Any, last: int) -> tuple[np.ndarray, Any]:
        """Read tokens (B, T); return logits and the state."""


class HMMBelief:
    """Tables of a hidden Markov model, and its belief about the hidden state."""

    def __init__(self, model: HiddenMarkovModel) -> None:
        self._model = model
        self.transition = model.transition.astype(np.float64)
        self.emission = model.emission.astype(np.float64)

    def belief(self, tokens: Sequence[int]) -> np.ndarray:
        """Compute the probability of each hidden state (K,) for the token after these."""
        state = self._model.start(1)
        _, state = self._model(np.array([tokens]), state, last=1)
        return np.exp(state.predicted[0].astype(np.float64))


def exactly(loaded: LoadedModel, form: Constraint) -> Exact:
    """Convert a constraint to one that samples from the true conditional distribution.

    Raises:
        UsageError: that cannot be computed of this model, or of this form.
    """
    model = getattr(loaded.model, "arrays", loaded.model)
    if isinstance(model, NGramArrays):
        return Exact.of(form, NGramContexts(model))
    if isinstance(model, HiddenMarkovModel):
        return ExactHidden.of(form, HMMBelief(model))
    raise UsageError(
        f"only what an n-gram or a hidden Markov model writes can be summed, and "
        f"{loaded.stored.name} is another kind; use --pattern-mode resample"
    )


def log_prob_of(loaded: LoadedModel, pattern: str, max_tokens: int) -> float:
    """Compute the log-probability, in nats, that a model generates a text matching a pattern.

    The text stands at the beginning, has at most `max_tokens` tokens, and then ends, as a text that
    is sampled does: by any token that cannot continue it, or at `max_tokens`.

    Raises:
        UsageError: it is no pattern, or this cannot be computed of this model; says why.
    """
    _, dead_id = end_and_dead_end(loaded.tokenizer)
    form = constraint_of(loaded, "--pattern", pattern, max_tokens, dead_id)
    exact = exactly(loaded, form)
    return exact.product(loaded.framing.opened(())).log_prob


def content(name: str) -> str:
    """Read a text file as UTF-8.

    Raises:
        SeqgenError: it cannot be read, or is no UTF-8.
    """
    try:
        with reporting_unreadable(name):
            return Path(name).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SeqgenError(f"{name} is not UTF-8 at byte {error.start}") from None


@functools.lru_cache(maxsize=16)
def _constraint(
    tokenizer: Tokenizer,
    kind: str,
    text: str,
    max_tokens: int,
    dead_id: int | None,
    never: frozenset[int],
    ends: frozenset[int],
    backward: bool,
) -> Constraint:
    """Build a constraint, with a cache of the automaton states that texts have reached."""
    automaton = automaton_of(tokenizer, kind, text, never | ends, backward)
    if min(automaton.cost(automaton.start), automaton.cost(automaton.fresh)) == NEVER:
        character = next(filter(tokenizer.first_unknown, automaton.network.single), None)
        what = "any text of it" if character is None else repr(character)
        raise UsageError(f"the model's tokens cannot write {what}")
    end, _ = end_and_dead_end(tokenizer)
    fresh_after = (tokenizer.newline_id, tokenizer.bos_id)
    return Constraint(automaton, max_tokens, end, ends, never, fresh_after, dead_id)


@functools.lru_cache(maxsize=16)
def automaton_of(
    tokenizer: Tokenizer, kind: str, text: str, excluded: frozenset[int], backward: bool
) -> Automaton:
    """Build the automaton of a language over a tokenizer's tokens.

    Args:
        tokenizer: of the model.
        kind: the flag that asks for it.
        text: the pattern, the grammar or the schema.
        excluded: the tokens that are never part of a text.
        backward: texts are written from right to left.

    Raises:
        UsageError: it cannot be read, or is too large.
    """
    network = CharacterNetwork(backward)
    add = {"--grammar": add_grammar, "--json-schema": add_schema}.get(kind, add_pattern)
    network.finish(add(network, network.start, text))
    return Automaton(network, *vocabularies(tokenizer, excluded, backward))


def matching(words: Sequence[str], pattern: str | None) -> np.ndarray:
    """Mark the words that match a whole pattern, (W,) of bool; all of them without a pattern.

    Raises:
        UsageError: it is no pattern, or no word matches it.
    """
    if pattern is None:
        return np.ones(len(words), dtype=bool)
    try:
        network = CharacterNetwork()
        network.finish(add_pattern(network, network.start, pattern))
        automaton = Automaton(network, Vocabulary.of([word.encode() for word in words]))
        after = automaton.after(automaton.start)
        matched = np.array([automaton.accepts(state) for state in after.tolist()])
        require(bool(matched.any()), "no token of the model matches it")
    except UsageError as error:
        raise UsageError(f"--pattern: {error}") from None
    return matched
