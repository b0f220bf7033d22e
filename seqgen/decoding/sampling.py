"""Sampling: many prompts, many samples of each, in one batch, each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from seqgen.decoding.continuation import Continuation
from seqgen.decoding.draw import Choose
from seqgen.decoding.processors import History, Processor, normalise
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


@without_gradients
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
        processors: applied in this order at every step.
        choose: picks the tokens.
        watch: is called at every step with how the tokens were chosen.
        opens: opens a state for the rows' handles; None for a model that has no sources.
        outcomes: makes one outcome of several tokens; see `constraint.Constraint.outcomes`.

    Yields:
        Every token as it is drawn. A row that is finished from the start yields one empty step.
    """
    texts = [begin(row) for row in rows]
    for row, text in zip(rows, texts, strict=True):
        if text.finish_reason:
            yield Step(row, "", text)
    alive = [i for i, text in enumerate(texts) if not text.finish_reason]
    if not alive:
        return
    rows, texts = [rows[i] for i in alive], [texts[i] for i in alive]
    logits, state = prefill(
        model, [row.tokens for row in rows], opens, [row.handle for row in rows]
    )
    histories = [History(row.tokens, len(row.tokens)) for row in rows]
    step = 0
    while True:
        # (B, V), the model's own
        log_probs = logits if model.normalised else normalise(logits)
        if outcomes is not None:
            log_probs = outcomes(histories, log_probs)
        stages = [log_probs]
        for processor in processors:
            stages.append(processor(histories, stages[-1]))
        chosen = choose([(row.prompt, row.sample) for row in rows], step, stages[-1])
        of_chosen = log_probs[range(len(rows)), chosen].tolist()
        if watch is not None:
            watch(rows, step, stages, chosen)
        for row, text, history, token, logprob in zip(
            rows, texts, histories, chosen, of_chosen, strict=True
        ):
            history.append(token)
            yield Step(row, text.push(token, logprob), text)
        alive = [i for i, text in enumerate(texts) if not text.finish_reason]
        if not alive:
            return
        if len(alive) < len(rows):
            state = state.select(alive)
            rows, texts, histories, chosen = (
                [values[i] for i in alive] for values in (rows, texts, histories, chosen)
            )
        logits, state = model.step(chosen, state)
        step += 1


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
