"""The form that a text must have: a pattern, as a constraint on the tokens of a model."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from seqgen.errors import SeqgenError, UsageError
from seqgen.generation.backward import BackwardDecoder
from seqgen.generation.processors import normalise
from seqgen.models.hmm.arrays import HMMArrays
from seqgen.models.ngram.arrays import NGramArrays
from seqgen.plugins.novelty.max_copy import MaxCopy
from seqgen.plugins.novelty.novelty import known_to
from seqgen.plugins.patterns.automaton import NEVER, Automaton, Vocabulary
from seqgen.plugins.patterns.constraint import Constraint
from seqgen.plugins.patterns.exact import Exact, ExactHidden
from seqgen.plugins.patterns.grammar import add_grammar
from seqgen.plugins.patterns.json_schema import add_schema
from seqgen.plugins.patterns.network import CharacterNetwork
from seqgen.plugins.patterns.regex import add_pattern
from seqgen.settings import require
from seqgen.settings.generation import Form, SampleOptions, WritingOptions
from seqgen.store.loaded import LoadedModel
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.sentencepiece import ESCAPE, SentencepieceTokenizer


def constraint_of(
    loaded: LoadedModel, options: WritingOptions, dead_ends: bool = True
) -> Constraint:
    """Return what keeps texts in the form that the options ask for.

    Args:
        loaded: the model.
        options: its form, and the length of texts.
        dead_ends: a token ends a text that cannot go on; otherwise no token is left to it.

    Raises:
        UsageError: the form cannot be read, or the model cannot write a text of it; says why.
    """
    flag = options.form.given[0]
    text = getattr(options.form, flag[2:].replace("-", "_"))
    if flag != "--pattern" and not (flag == "--json-schema" and text.startswith("{")):
        text = content(text)
    return _constraint_for(loaded, flag, text, options.max_tokens, dead_ends, said=flag)


def _constraint_for(
    loaded: LoadedModel, kind: str, text: str, max_tokens: int, dead_ends: bool, said: str
) -> Constraint:
    """Return the constraint of a form for a model; `said` is what an error calls the form."""
    ids = frozenset(loaded.never), frozenset(loaded.framing.stops)
    try:
        return _constraint(
            loaded.tokenizer, kind, text, max_tokens, dead_ends, *ids, loaded.backward
        )
    except UsageError as error:
        raise UsageError(f"{said}: {error}") from None


class Grams:
    """An n-gram model's contexts, of which texts that it cannot tell apart have the same."""

    def __init__(self, model: NGramArrays) -> None:
        self._model = model

    def first(self) -> tuple[int, ...]:
        """Return the context of no token."""
        return (-1,) * (self._model.order - 1)

    def after(self, context: tuple[int, ...], token: int) -> tuple[int, ...]:
        """Return the context after one more token."""
        return tuple(self._model.steps.after(context, token))

    def log_probs(self, context: tuple[int, ...]) -> np.ndarray:
        """Return the log-probabilities of the next token, (V,) in float64."""
        return normalise(self._model.steps.row(context).astype(np.float64))


class Hidden:
    """A hidden Markov model's tables, and what it believes of its state after tokens."""

    def __init__(self, model: HMMArrays) -> None:
        self._model = model
        self.transition = model.transition.astype(np.float64)
        self.emission = model.emission.astype(np.float64)

    def belief(self, tokens: Sequence[int]) -> np.ndarray:
        """Return the probability of each hidden state (K,) that emits the token after these."""
        state = self._model.start(1)
        _, state = self._model(np.array([tokens]), state, last=1)
        return np.exp(state.predicted[0].astype(np.float64))


def exactly(loaded: LoadedModel, form: Constraint) -> Exact:
    """Return a constraint whose texts have their true conditional probabilities.

    Raises:
        UsageError: that cannot be computed of this model, or of this form.
    """
    model = getattr(loaded.model, "arrays", loaded.model)
    if isinstance(model, NGramArrays):
        return Exact.of(form, Grams(model))
    if isinstance(model, HMMArrays):
        return ExactHidden.of(form, Hidden(model))
    raise UsageError(
        f"only what an n-gram or a hidden Markov model writes can be summed, and "
        f"{loaded.stored.name} is another kind; use --pattern-mode resample"
    )


def log_prob_of(loaded: LoadedModel, pattern: str, max_tokens: int) -> float:
    """Return the log-probability, in nats, that a model writes a text of a pattern.

    The text stands at the beginning, has at most `max_tokens` tokens, and then ends, as a text that
    is sampled does: by any token that cannot continue it, or at `max_tokens`.

    Raises:
        UsageError: it is no pattern, or this cannot be computed of this model; says why.
    """
    options = SampleOptions(form=Form(pattern=pattern), max_tokens=max_tokens)
    exact = exactly(loaded, constraint_of(loaded, options))
    return exact.product(loaded.framing.opened(())).log_prob


def containing(
    loaded: LoadedModel, text: str, max_tokens: int, flag: str = "--include"
) -> Constraint:
    """Return the language of all texts that contain `text`.

    Raises:
        UsageError: the model cannot write it, or not within `max_tokens`; names the flag.
    """
    form = f"(?s:.*){re.escape(text)}(?s:.*)"
    return _constraint_for(loaded, "--pattern", form, max_tokens, False, f"{flag} {text!r}")


class Terms:
    """What must occur in a translation because its source contains something.

    Args:
        name: of a file with a term of the source, a tab and its translation a line.

    Raises:
        SeqgenError: it cannot be read, or a line is no such pair.
    """

    def __init__(self, name: str) -> None:
        self._pairs = []
        for number, line in enumerate(content(name).split("\n"), 1):
            source, tab, target = line.removesuffix("\r").partition("\t")
            if not line.strip():
                continue
            if not (tab and source and target):
                raise SeqgenError(f"{name}: line {number} has no term, tab and translation")
            word = re.compile(rf"(?<!\w){re.escape(source)}(?!\w)")
            self._pairs.append((word, target))

    def of(self, source: str) -> list[str]:
        """Return the translations of the terms that occur in a source as whole words."""
        return [target for word, target in self._pairs if word.search(source)]


def content(name: str) -> str:
    """Return the text of a file.

    Raises:
        SeqgenError: it cannot be read, or is no UTF-8.
    """
    try:
        return Path(name).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SeqgenError(f"{name} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise SeqgenError(f"{name} is not UTF-8 at byte {error.start}") from None


@functools.lru_cache(maxsize=16)
def _constraint(
    tokenizer: Tokenizer,
    kind: str,
    text: str,
    max_tokens: int,
    dead_ends: bool,
    never: frozenset[int],
    ends: frozenset[int],
    backward: bool,
) -> Constraint:
    """Return the constraint of a form, which remembers the states that texts have come to."""
    automaton = automaton_of(tokenizer, kind, text, never | ends, backward)
    if min(automaton.cost(automaton.start), automaton.cost(automaton.fresh)) == NEVER:
        character = next(filter(tokenizer.first_unknown, automaton.network.single), None)
        what = "any text of it" if character is None else repr(character)
        raise UsageError(f"the model's tokens cannot write {what}")
    end, dead = _end_and_dead_end(tokenizer)
    dead = dead if dead_ends else None
    fresh_after = (tokenizer.newline_id, tokenizer.bos_id)
    return Constraint(automaton, max_tokens, end, ends, never, fresh_after, dead)


def _end_and_dead_end(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return two tokens without text: for the end of a text, and for one that cannot go on."""
    reserved = [i for i in tokenizer.special_ids if i != tokenizer.unk_id]
    end = tokenizer.eos_id if tokenizer.eos_id in reserved else reserved[0]
    return end, next(i for i in reserved if i != end)


def max_copy(loaded: LoadedModel, options: WritingOptions, dead_ends: bool = True) -> list[MaxCopy]:
    """Return the filter that keeps texts from copying as much as the options say.

    Args:
        loaded: the model.
        options: how many characters are a copy.
        dead_ends: a token ends a text that cannot go on; otherwise no token is left to it.

    Raises:
        UsageError: the model writes from right to left.
        SeqgenError: the text that it was trained on is not known.
    """
    require(not loaded.backward, "--max-copy is for models that write from left to right")
    tokenizer = loaded.tokenizer
    within, first = (
        [table.get(i) for i in range(tokenizer.vocab_size)]
        for table in _bytes_within_and_first(tokenizer, tokenizer.special_ids, False)
    )
    dead = _end_and_dead_end(tokenizer)[1] if dead_ends else None
    fresh_after = (tokenizer.newline_id, tokenizer.bos_id)
    index = known_to(loaded).index
    return [MaxCopy(index, options.max_copy, within, first, fresh_after, dead)]


@functools.lru_cache(maxsize=16)
def automaton_of(
    tokenizer: Tokenizer, kind: str, text: str, excluded: frozenset[int], backward: bool
) -> Automaton:
    """Return the automaton of a form over a tokenizer's tokens.

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


@functools.lru_cache(maxsize=4)
def vocabularies(
    tokenizer: Tokenizer, excluded: frozenset[int], backward: bool
) -> tuple[Vocabulary, Vocabulary | None]:
    """Return the bytes of all tokens: within a line, and where they begin one if these differ."""
    within, first = _bytes_within_and_first(tokenizer, excluded, backward)
    every = range(tokenizer.vocab_size)
    differs = within != first
    if differs:  # a line that begins within a text would need a third table
        within.pop(tokenizer.newline_id, None)
        first.pop(tokenizer.newline_id, None)
    of_all = Vocabulary([within.get(i) for i in every], backward)
    return of_all, Vocabulary([first.get(i) for i in every], backward) if differs else None


def _bytes_within_and_first(
    tokenizer: Tokenizer, excluded: Collection[int | None], backward: bool
) -> list[dict[int, bytes]]:
    """Return the bytes of each token but those excluded, within a line and at its beginning."""
    known = [i for i in range(tokenizer.vocab_size) if i not in excluded]
    inside = next((i for i in known if tokenizer.decode([i]).strip()), known[0])
    return [dict(_bytes(tokenizer, known, past, backward)) for past in ((inside,), ())]


def _bytes(
    tokenizer: Tokenizer, ids: list[int], history: tuple[int, ...], backward: bool
) -> Iterator[tuple[int, bytes]]:
    """Yield tokens and the bytes that each adds to a text after the tokens of `history`."""
    escapes = isinstance(tokenizer, SentencepieceTokenizer) and tokenizer.lossless
    for token in ids:
        raw = tokenizer.text_bytes(np.array([token]))
        if escapes and ESCAPE.encode() in raw:
            continue  # it depends on the next token what it stands for
        if backward:
            text = BackwardDecoder(tokenizer, history).push(token)[::-1]
        else:
            text = tokenizer.decoder(history).push(token)
        # Bytes of part of a character are no text yet, or one that stands for what is missing.
        yield token, text.encode() if text and "\ufffd" not in text else raw
