"""Sampling: many prompts, many samples of each, in one batch, each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np

from seqgen.decoding.continuation import Continuation
from seqgen.decoding.draw import Choose, CounterDraw
from seqgen.decoding.processors import History, Processor, normalise
from seqgen.models.distributions import require_numbers
from seqgen.models.engines.ops import ops_of
from seqgen.models.reader import Reader, without_gradients
from seqgen.models.state import State


@dataclass(frozen=True)
class Row:
    """One text to be written.

    Attributes:
        prompt: the prompt's number i, which the draws depend on.
        sample: the sample's number j of that prompt.
        tokens: the prompt's ids, with the start symbol first.
        handle: the number of the source that it is written from; equal sources have the same.
        max_tokens: at most so many tokens of this text; None for no limit of its own.
    """

    prompt: int
    sample: int
    tokens: tuple[int, ...]
    handle: int = 0
    max_tokens: int | None = None


class Step(NamedTuple):
    """What one token added to one text."""

    row: Row
    text: str
    continuation: Continuation


# Handles of sources, one a row, to a state whose rows are written from those sources and hold no
# past yet. Decoding knows a source by its handle alone.
Opens = Callable[[Sequence[int]], State]

# Tokens of a prompt that are read at a time, to limit the memory that activations take.
PIECE = 4096

# The rows, the step t, the log-probabilities (B, V) before and after each processor, the choices.
Watch = Callable[[Sequence[Row], int, Sequence[np.ndarray], Sequence[int]], None]


@dataclass(frozen=True, eq=False)
class Manner:
    """How some texts are written.

    Attributes:
        processors: applied in this order at every step.
        choose: picks the tokens.
        watch: is called at every step with how the tokens were chosen.
        outcomes: makes one outcome of several tokens; see `constraint.Constraint.outcomes`.
    """

    processors: Sequence[Processor]
    choose: Choose
    watch: Watch | None = None
    outcomes: Processor | None = None

    @cached_property
    def alike(self) -> object:
        """What is equal for manners whose texts are drawn together, with a seed and step each."""
        seeded = isinstance(self.choose, CounterDraw)
        apart = self.watch is not None or self.outcomes is not None or not seeded
        return id(self) if apart else tuple(self.processors)


class Text:
    """One text in a batch.

    Attributes:
        row: what identifies it.
        manner: how it is written.
        continuation: what is written so far.
        history: its tokens, the prompt's first.
        dropped: nobody wants the rest of it.
    """

    def __init__(self, row: Row, continuation: Continuation, manner: Manner) -> None:
        self.row, self.continuation, self.manner = row, continuation, manner
        self.history = History(row.tokens, len(row.tokens))
        self.dropped = False

    @property
    def step(self) -> int:
        """How many tokens have been drawn."""
        return len(self.history) - self.history.prompt


class Batch:
    """Texts that are written side by side, and may join and leave at any step.

    `draw` and `read` take turns; texts join before a `draw`.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: Reader) -> None:
        self.model = model
        self.texts: list[Text] = []
        # Of the texts in order, in parts that are joined at the next `draw`: logits (B, V) of the
        # next token, and the states after what was read.
        self._parts: list[tuple[np.ndarray, State]] = []

    @without_gradients
    def join(self, texts: Sequence[Text], opens: Opens | None = None) -> None:
        """Read the prompts of some texts, and write these from now on.

        Args:
            texts: none of them finished.
            opens: opens a state for the rows' handles; None for a model that has no sources.
        """
        prompts = [text.row.tokens for text in texts]
        handles = [text.row.handle for text in texts]
        self._parts.append(prefill(self.model, prompts, opens, handles))
        self.texts = [*self.texts, *texts]

    @without_gradients
    def draw(self) -> list[Step]:
        """Draw the next token of every text."""
        if len(self._parts) > 1:
            logits, states = zip(*self._parts, strict=True)
            self._parts = [(np.concatenate(logits), type(states[0]).cat(states))]
        ((logits, _),), steps = self._parts, []
        # The model's own.
        log_probs = require_numbers(logits if self.model.normalised else normalise(logits))
        alike: dict[object, list[int]] = {}
        for place, text in enumerate(self.texts):
            alike.setdefault(text.manner.alike, []).append(place)
        for places in alike.values():
            of_these = log_probs if len(alike) == 1 else log_probs[places]
            steps += _drawn([self.texts[place] for place in places], of_these)
        return steps

    @without_gradients
    def read(self) -> None:
        """Let finished and dropped texts go; have the model read what was drawn for the others."""
        unfinished = [
            place
            for place, text in enumerate(self.texts)
            if not (text.continuation.finish_reason or text.dropped)
        ]
        ((_, state),), self._parts = self._parts, []
        if len(unfinished) < len(self.texts):
            self.texts = [self.texts[place] for place in unfinished]
            state = state.select(unfinished) if unfinished else state
        if self.texts:
            self._parts = [self.model.step([text.history[-1] for text in self.texts], state)]


def _drawn(texts: Sequence[Text], log_probs: np.ndarray) -> Iterator[Step]:
    """Draw the next token of texts that are written alike."""
    manner, step = texts[0].manner, texts[0].step
    rows, histories = [text.row for text in texts], [text.history for text in texts]
    if manner.outcomes is not None:
        log_probs = manner.outcomes(histories, log_probs)
    stages = [log_probs]
    for processor in manner.processors:
        stages.append(processor(histories, stages[-1]))
    choose, steps = manner.choose, step
    seeded = isinstance(choose, CounterDraw)
    if seeded and any(text.manner is not manner or text.step != step for text in texts):
        choose = CounterDraw(np.array([text.manner.choose.seed for text in texts]))
        steps = np.array([text.step for text in texts])
    chosen = choose([(row.prompt, row.sample) for row in rows], steps, stages[-1])
    of_chosen = log_probs[range(len(rows)), chosen].tolist()
    if manner.watch is not None:
        manner.watch(rows, step, stages, chosen)
    for text, token, logprob in zip(texts, chosen, of_chosen, strict=True):
        text.history.append(token)
        yield Step(text.row, text.continuation.push(token, logprob), text.continuation)


def sample(
    model: Reader,
    rows: Sequence[Row],
    begin: Callable[[Row], Continuation],
    processors: Sequence[Processor],
    choose: Choose,
    watch: Watch | None = None,
    opens: Opens | None = None,
    outcomes: Processor | None = None,
) -> Iterator[Step]:
    """Write all rows side by side; a finished row is removed from the batch.

    Args:
        model: in evaluation mode.
        rows: what to write.
        begin: opens a row's continuation.
        processors: see `Manner`, also for the others.
        choose: picks the tokens.
        watch: is called at every step.
        opens: opens a state for the rows' handles; None for a model that has no sources.
        outcomes: makes one outcome of several tokens.

    Yields:
        Every token as it is drawn. A row that is finished from the start yields one empty step.
    """
    manner = Manner(processors, choose, watch, outcomes)
    texts = [Text(row, begin(row), manner) for row in rows]
    for text in texts:
        if text.continuation.finish_reason:
            yield Step(text.row, "", text.continuation)
    texts = [text for text in texts if not text.continuation.finish_reason]
    batch = Batch(model)
    if texts:
        batch.join(texts, opens)
    while batch.texts:
        yield from batch.draw()
        batch.read()


def without_sources(model: Reader) -> Opens:
    """Return what opens the states of a model that writes from no source."""
    return lambda handles: model.start(len(handles))


@without_gradients
def prefill(
    model: Reader,
    prompts: Sequence[tuple[int, ...]],
    opens: Opens | None = None,
    handles: Sequence[int] | None = None,
) -> tuple[np.ndarray, State]:
    """Read every prompt once, those of equal length together; return logits (B, V) and state.

    Prompts are never padded, since their state is used again. Rows with the same prompt and the
    same source are read as one.

    Args:
        model: in evaluation mode.
        prompts: B prompts, each of at least one id.
        opens: opens a state for the rows' handles; None for a model that has no sources.
        handles: B handles of sources, where there are sources.
    """
    opens = opens or without_sources(model)
    keys = list(zip(handles or [0] * len(prompts), prompts, strict=True))
    distinct = sorted(dict.fromkeys(keys), key=_length)
    logits, states = [], []
    for length, of_equal_length in groupby(distinct, key=_length):
        source_handles, rows = map(list, zip(*of_equal_length, strict=True))
        state = opens(source_handles)
        if length == 1:
            after, state = model.step([token for (token,) in rows], state)
        else:
            ids = model.ids(np.array(rows))
            for first in range(0, length, PIECE):
                called, state = model(ids[:, first : first + PIECE], state, last=1)
            after = ops_of(called).array(called)[:, 0]
        logits.append(after)
        states.append(state)
    state = type(states[0]).cat(states) if len(states) > 1 else states[0]
    if distinct == keys:
        return np.concatenate(logits), state
    number = {key: i for i, key in enumerate(distinct)}
    row_of_each = [number[key] for key in keys]
    return np.concatenate(logits)[row_of_each], state.select(row_of_each)


def _length(key: tuple[int, tuple[int, ...]]) -> int:
    """Return the number of ids in the prompt of a (handle, prompt) pair."""
    return len(key[1])
