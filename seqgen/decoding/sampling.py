"""Sampling: many prompts, many samples of each, in one batch, each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from seqgen.decoding.draw import Choose
from seqgen.decoding.processors import Processor
from seqgen.decoding.text import Continuation
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


@dataclass(frozen=True)
class Step:
    """What one token added to one text."""

    row: Row
    text: str
    continuation: Continuation


@torch.inference_mode()
def sample(
    model: LanguageModel,
    rows: Sequence[Row],
    begin: Callable[[Row], Continuation],
    processors: Sequence[Processor],
    choose: Choose,
) -> Iterator[Step]:
    """Write all rows side by side; a finished one leaves the batch.

    Args:
        model: in evaluation mode.
        rows: what to write.
        begin: opens a row's continuation.
        processors: applied in this order at every step.
        choose: picks the tokens.

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
    logits, state = _prefill(model, rows)
    histories = [list(row.tokens) for row in rows]
    step = 0
    while True:
        log_probs = logits.log_softmax(-1)  # (B, V), the model's own
        filtered = log_probs
        for processor in processors:
            filtered = processor(histories, filtered)
        chosen = choose([(row.prompt, row.sample) for row in rows], step, filtered)
        of_chosen = log_probs[range(len(rows)), chosen].tolist()
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
        tokens = torch.tensor(chosen, device=model.device)[:, None]  # (B, 1)
        logits, state = model(tokens, state)
        logits = logits[:, 0]
        step += 1


def _prefill(model: LanguageModel, rows: Sequence[Row]) -> tuple[torch.Tensor, State]:
    """Read every prompt once, those of equal length together; return logits (B, V) and state.

    Prompts are never padded, since their state is used again.
    """
    prompts = list(dict.fromkeys(row.tokens for row in rows))
    prompts.sort(key=len)
    logits, states = [], []
    at = 0
    while at < len(prompts):
        same = [p for p in prompts[at:] if len(p) == len(prompts[at])]
        tokens = torch.tensor(same, device=model.device)
        after, state = model(tokens, model.start(len(same)), last=1)
        logits.append(after[:, 0])
        states.append(state)
        at += len(same)
    number = {prompt: i for i, prompt in enumerate(prompts)}
    wanted = [number[row.tokens] for row in rows]
    state = type(states[0]).cat(states) if len(states) > 1 else states[0]
    return torch.cat(logits)[wanted], state.select(wanted)
