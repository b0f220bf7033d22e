"""Batched sampling: each text gets the same tokens as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from seqgen.engines.native.library import library
from seqgen.engines.native.softmax import draw
from seqgen.engines.ops import ops_of, without_gradients
from seqgen.generation.draw import Choose, CounterDraw
from seqgen.generation.processors import Forbid, History, Processor, normalise
from seqgen.models.distributions import require_numbers

if TYPE_CHECKING:
    from seqgen.generation.continuation import Continuation
    from seqgen.generation.processors import PromptOverlap
    from seqgen.models.inference import InferenceModel
    from seqgen.models.state import Opens, State


@dataclass(frozen=True)
class Row:
    """Text to generate, or all texts of a beam search: their prompt, sample number and source.

    Attributes:
        prompt: the prompt's number i, which draws and stochastic searches depend on.
        sample: the sample's number j of that prompt; 0 of a search.
        tokens: the prompt's ids, with the start symbol first.
        handle: the number of the source that it is written from; equal sources have the same.
        max_tokens: at most so many tokens of this text; None for no limit of its own.
        overlap: what its first token has in common with the prompt; None for nothing.
    """

    prompt: int
    sample: int
    tokens: tuple[int, ...]
    handle: int = 0
    max_tokens: int | None = None
    overlap: PromptOverlap | None = None


class Step(NamedTuple):
    """One token added to one text."""

    row: Row
    text: str
    continuation: Continuation


# In the place of a token that a drawer is not sure of.
UNSURE = -1

# Tokens of a prompt that are read at a time, to limit the memory that activations take.
PIECE = 4096

# The rows, the step t, the log-probabilities (B, V) before and after each processor, the choices.
Watch = Callable[[Sequence[Row], int, Sequence[np.ndarray], Sequence[int]], None]


@dataclass(frozen=True, eq=False)
class SamplingPolicy:
    """Filters, token choice and callbacks for a batch of texts.

    Attributes:
        processors: applied in this order at every step.
        choose: picks the tokens.
        watch: is called at every step with how the tokens were chosen.
        outcomes: makes one outcome of several tokens; see `constraint.TextConstraint.outcomes`.
    """

    processors: Sequence[Processor]
    choose: Choose
    watch: Watch | None = None
    outcomes: Processor | None = None

    @cached_property
    def alike(self) -> object:
        """Key that is equal for policies whose texts can be drawn in one call."""
        seeded = isinstance(self.choose, CounterDraw)
        apart = self.watch is not None or self.outcomes is not None or not seeded
        return id(self) if apart else tuple(self.processors)

    @cached_property
    def is_plain(self) -> bool:
        """Check whether tokens come from the model's distribution, except forbidden ones."""
        only_forbidden = [type(processor) for processor in self.processors] == [Forbid]
        unwatched = self.watch is None and self.outcomes is None
        return only_forbidden and unwatched and isinstance(self.choose, CounterDraw)


class BatchText:
    """Text in a batch: its continuation, history and policy.

    Attributes:
        row: what identifies it.
        policy: how its tokens are chosen.
        continuation: what is written so far.
        history: its tokens, the prompt's first.
        dropped: nobody wants the rest of it.
        error: why its next token could not be drawn; it is dropped then.
    """

    def __init__(self, row: Row, continuation: Continuation, policy: SamplingPolicy) -> None:
        self.row, self.continuation, self.policy = row, continuation, policy
        place = row.prompt, row.sample
        self.history = History(row.tokens, len(row.tokens), place, row.overlap)
        self.dropped = False
        self.error: Exception | None = None

    @property
    def step(self) -> int:
        """Number of tokens drawn."""
        return len(self.history) - self.history.prompt


class TextBatch:
    """Batch of texts that may join and leave at any step.

    `draw` and `read` take turns; texts join before a `draw`.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: InferenceModel) -> None:
        self.model = model
        self.texts: list[BatchText] = []
        # Of the texts in order, in parts that are joined at the next `draw`: logits (B, V) of the
        # next token, unless there is a drawer, and the states after what was read.
        self._parts: list[tuple[np.ndarray | None, State]] = []
        self.drawer = model.drawer

    @without_gradients
    def join(self, texts: Sequence[BatchText], opens: Opens | None = None) -> None:
        """Read the prompts of new texts and add the texts to the batch.

        Args:
            texts: none of them finished.
            opens: opens a state for the rows' handles; None for a model that has no sources.
        """
        prompts = [text.row.tokens for text in texts]
        handles = [text.row.handle for text in texts]
        logits, state = prefill(self.model, prompts, opens, handles)
        self._parts.append((None if self.drawer else logits, state))
        self.texts = [*self.texts, *texts]

    @without_gradients
    def last_read(self) -> tuple[np.ndarray | None, State]:
        """Copy the logits and state after the single prompt of the texts added last."""
        logits, state = self._parts[-1]
        return _rows_of(logits, [0]), state.copy().select([0]).copy()

    @without_gradients
    def join_after(self, texts: Sequence[BatchText], read: tuple[np.ndarray | None, State]) -> None:
        """Add texts whose prompt was already read; see `last_read`."""
        logits, state = read
        rows = [0] * len(texts)
        self._parts.append((_rows_of(logits, rows), state.copy().select(rows)))
        self.texts = [*self.texts, *texts]

    @without_gradients
    def split(self, texts: Collection[BatchText]) -> TextBatch:
        """Move some texts to a new batch, before a `draw`."""
        other, moved = TextBatch(self.model), {id(text) for text in texts}
        leaves = [place for place, text in enumerate(self.texts) if id(text) in moved]
        stays = [place for place, text in enumerate(self.texts) if id(text) not in moved]
        if not stays:
            return self._give_all(other)
        if len(self._parts) > 1:
            self._join_parts()
        ((logits, state),) = self._parts
        other.texts = [self.texts[place] for place in leaves]
        self.texts = [self.texts[place] for place in stays]
        # Copied twice, since rows that are selected may keep the memory of all of them.
        other._parts = [(_rows_of(logits, leaves), state.copy().select(leaves).copy())]
        self._parts = [(_rows_of(logits, stays), state.select(stays))]
        return other

    def merge(self, other: TextBatch) -> None:
        """Move all texts of another batch into this one, before a `draw`."""
        other._give_all(self)

    def _give_all(self, other: TextBatch) -> TextBatch:
        other.texts, self.texts = [*other.texts, *self.texts], []
        other._parts, self._parts = [*other._parts, *self._parts], []
        return other

    def draw(self) -> list[Step]:
        """Draw the next token of every text.

        An error is that of the texts whose policy has caused it; it is raised if the batch has
        none of another policy.
        """
        if len(self._parts) > 1:
            self._join_parts()
        return [step for places in self._written_alike() for step in self._draw_alike(places)]

    def _draw_alike(self, places: Sequence[int]) -> list[Step]:
        """Draw the next token of the texts at some places, which share a policy."""
        texts, steps = [self.texts[place] for place in places], []
        try:
            drawn = self._drawn(texts, *self._rows(places))
        except Exception as error:
            by_policy: dict[int, list[int]] = {}
            for place, text in zip(places, texts, strict=True):
                by_policy.setdefault(id(text.policy), []).append(place)
            if len(by_policy) > 1:
                return [step for part in by_policy.values() for step in self._draw_alike(part)]
            self._fail(texts, error)
            return []
        for text, token, logprob in zip(texts, *drawn, strict=True):
            text.history.append(token)
            try:
                piece = text.continuation.push(token, logprob)
            except Exception as error:
                self._fail([text], error)
            else:
                steps.append(Step(text.row, piece, text.continuation))
        return steps

    def _rows(self, places: Sequence[int]) -> tuple[np.ndarray | None, State]:
        """Select the logits and, with a drawer, the states of the texts at some places."""
        ((logits, state),) = self._parts
        if len(places) == len(self.texts):
            return logits, state
        return (None, state.copy().select(places)) if self.drawer else (logits[places], state)

    def _fail(self, texts: Sequence[BatchText], error: Exception) -> None:
        if all(text.policy is texts[0].policy for text in self.texts):
            raise error
        for text in texts:
            text.error, text.dropped = error, True

    @without_gradients
    def _join_parts(self) -> None:
        logits, states = zip(*self._parts, strict=True)
        joined = None if self.drawer else np.concatenate(logits)
        self._parts = [(joined, type(states[0]).cat(states))]

    def _written_alike(self) -> list[Sequence[int]]:
        """Group the places of texts whose policies can be drawn in one call."""
        first = self.texts[0].policy
        if all(text.policy is first for text in self.texts):
            return [range(len(self.texts))]
        alike: dict[object, list[int]] = {}
        for place, text in enumerate(self.texts):
            alike.setdefault(text.policy.alike, []).append(place)
        return [*alike.values()]

    def _own(self, logits: np.ndarray) -> np.ndarray:
        """Compute the model's unfiltered log-probabilities (B, V)."""
        return require_numbers(logits if self.model.normalised else normalise(logits))

    def _drawn(
        self, texts: Sequence[BatchText], logits: np.ndarray | None, state: State
    ) -> tuple[list[int], list[float]]:
        """Draw the next tokens of texts that share a policy, with their log-probabilities.

        Rows (V) are computed only where they are needed.
        """
        drawer, policy = self.drawer, texts[0].policy
        if not policy.is_plain or not (drawer or self._can_draw(logits)):
            return _choose(texts, self._own(drawer.logits(state) if drawer else logits))
        choose, steps = _draws_of(texts)
        drawn = choose.uniforms(_identities(texts), steps), policy.processors[0].distinct
        outcome = drawer.draw(state, *drawn) if drawer else draw(logits, *drawn)
        tokens, log_probs = (x.tolist() for x in outcome)
        if UNSURE in tokens:
            places = [place for place, token in enumerate(tokens) if token == UNSURE]
            rows = drawer.logits(state.copy().select(places)) if drawer else logits[places]
            chosen = _choose([texts[place] for place in places], self._own(rows))
            for place, token, log_prob in zip(places, *chosen, strict=True):
                tokens[place], log_probs[place] = token, log_prob
        return tokens, log_probs

    def _can_draw(self, logits: np.ndarray) -> bool:
        """Check whether the compiled library can draw from these logits."""
        return logits.dtype == np.float32 and library() is not None

    @without_gradients
    def read(self) -> None:
        """Remove finished and dropped texts; feed the drawn tokens of the others to the model."""
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
            last = [text.history[-1] for text in self.texts]
            read = self.drawer and (None, self.drawer.read(last, state))
            self._parts = [read or self.model.step(last, state)]


def _rows_of(logits: np.ndarray | None, places: Sequence[int]) -> np.ndarray | None:
    return None if logits is None else logits[places]


def _identities(texts: Sequence[BatchText]) -> list[tuple[int, int]]:
    """List (prompt, sample) of each text, which the random draw depends on."""
    return [text.history.place for text in texts]


def _draws_of(texts: Sequence[BatchText]) -> tuple[Choose, int | np.ndarray]:
    """Return the token chooser and step numbers for texts that share a policy."""
    policy, step = texts[0].policy, texts[0].step
    seeded = isinstance(policy.choose, CounterDraw)
    if seeded and any(text.policy is not policy or text.step != step for text in texts):
        seeds = np.array([text.policy.choose.seed for text in texts])
        return CounterDraw(seeds), np.array([text.step for text in texts])
    return policy.choose, step


def _choose(texts: Sequence[BatchText], log_probs: np.ndarray) -> tuple[list[int], list[float]]:
    """Choose the next token of texts that share a policy; return tokens and log-probabilities."""
    policy, histories = texts[0].policy, [text.history for text in texts]
    if policy.outcomes is not None:
        log_probs = policy.outcomes(histories, log_probs)
    stages = [log_probs]
    for processor in policy.processors:
        stages.append(processor(histories, stages[-1]))
    choose, steps = _draws_of(texts)
    chosen = choose(_identities(texts), steps, stages[-1])
    if policy.watch is not None:
        policy.watch([text.row for text in texts], texts[0].step, stages, chosen)
    return chosen, log_probs[range(len(texts)), chosen].tolist()


def sample(
    model: InferenceModel,
    rows: Sequence[Row],
    begin: Callable[[Row], Continuation],
    policy: SamplingPolicy,
    opens: Opens | None = None,
) -> Iterator[Step]:
    """Generate all rows in one batch; finished rows are removed from it.

    Args:
        model: in evaluation mode.
        rows: what to write.
        begin: opens a row's continuation.
        policy: how their tokens are chosen.
        opens: opens a state for the rows' handles; None for a model that has no sources.

    Yields:
        Every token as it is drawn. A row that is finished from the start yields one empty step.
    """
    texts = [BatchText(row, begin(row), policy) for row in rows]
    for text in texts:
        if text.continuation.finish_reason:
            yield Step(text.row, "", text.continuation)
    texts = [text for text in texts if not text.continuation.finish_reason]
    batch = TextBatch(model)
    if texts:
        batch.join(texts, opens)
    while batch.texts:
        yield from batch.draw()
        batch.read()


def without_sources(model: InferenceModel) -> Opens:
    """Make a function that opens fresh states of a text model."""
    return lambda handles: model.start(len(handles))


@without_gradients
def prefill(
    model: InferenceModel,
    prompts: Sequence[tuple[int, ...]],
    opens: Opens | None = None,
    handles: Sequence[int] | None = None,
) -> tuple[np.ndarray, State]:
    """Read every distinct prompt once, and return logits (B, V) and state.

    Those of equal length are read together, or all where the model does that. Prompts are never
    padded, since their state is used again. Rows with the same prompt and the same source are read
    as one.

    Args:
        model: in evaluation mode.
        prompts: B prompts, each of at least one id.
        opens: opens a state for the rows' handles; None for a model that has no sources.
        handles: B handles of sources, where there are sources.
    """
    keys = list(zip(handles or [0] * len(prompts), prompts, strict=True))
    distinct = sorted(dict.fromkeys(keys), key=_length)
    logits, states, groups = [], [], groupby(distinct, key=_length)
    shortest, longest = _length(distinct[0]), _length(distinct[-1])
    if opens is None and shortest < longest <= model.most_together:
        after, state = model.read_together([tokens for _, tokens in distinct])
        logits, states, groups = [after], [state], ()
    opens = opens or without_sources(model)
    for length, of_equal_length in groups:
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
    """Return the prompt length of a (handle, prompt) pair."""
    return len(key[1])
