"""Sampling: many prompts, many samples of each, in one batch, each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch

from seqgen.decoding.continuation import Continuation
from seqgen.decoding.draw import Choose
from seqgen.decoding.processors import History, Processor, normalise
from seqgen.models.base import LanguageModel
from seqgen.models.state import State


@dataclass(frozen=True)
class Row:
    """One text to be written.

    Attributes:
        prompt: the prompt's number i, which the draws depend on.
        sample: the sample's number j of that prompt.
        tokens: the prompt's ids, with the start symbol first.
    """

    prompt: int
    sample: int
    tokens: tuple[int, ...]


class Step(NamedTuple):
    """What one token added to one text."""

    row: Row
    text: str
    continuation: Continuation


# So many tokens of a prompt are read at a time: what a layer makes of them takes room.
PIECE = 4096

# The rows, the step t, the log-probabilities (B, V) before and after each processor, the choices.
Watch = Callable[[Sequence[Row], int, Sequence[np.ndarray], Sequence[int]], None]


@torch.inference_mode()
def sample(
    model: LanguageModel,
    rows: Sequence[Row],
    begin: Callable[[Row], Continuation],
    processors: Sequence[Processor],
    choose: Choose,
    watch: Watch | None = None,
) -> Iterator[Step]:
    """Write all rows side by side; a finished one leaves the batch.

    Args:
        model: in evaluation mode.
        rows: what to write.
        begin: opens a row's continuation.
        processors: applied in this order at every step.
        choose: picks the tokens.
        watch: is shown how every token came about.

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
    logits, state = prefill(model, [row.tokens for row in rows])
    histories = [History(row.tokens, len(row.tokens)) for row in rows]
    step = 0
    while True:
        log_probs = normalise(logits)  # (B, V), the model's own
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


@torch.inference_mode()
def prefill(model: LanguageModel, prompts: Sequence[tuple[int, ...]]) -> tuple[np.ndarray, State]:
    """Read every prompt once, those of equal length together; return logits (B, V) and state.

    Prompts are never padded, since their state is used again.
    """
    distinct = sorted(dict.fromkeys(prompts), key=len)
    logits, states = [], []
    for length, same in groupby(distinct, key=len):
        rows = list(same)
        state = model.start(len(rows))
        if length == 1:
            after, state = model.step([token for (token,) in rows], state)
        else:
            for piece in torch.tensor(rows, device=model.device).split(PIECE, 1):
                called, state = model(piece, state, last=1)
            after = called[:, 0].cpu().numpy()
        logits.append(after)
        states.append(state)
    state = type(states[0]).cat(states) if len(states) > 1 else states[0]
    if distinct == list(prompts):
        return np.concatenate(logits), state
    number = {prompt: i for i, prompt in enumerate(distinct)}
    wanted = [number[prompt] for prompt in prompts]
    return np.concatenate(logits)[wanted], state.select(wanted)
