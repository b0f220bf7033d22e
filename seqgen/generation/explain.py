"""Explanations of generated text: top next tokens, and what each filter removed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqgen.generation.processors import IMPOSSIBLE, Forbid, likeliest, normalise
from seqgen.generation.prompts import batches, open_sources
from seqgen.generation.sample import SampleOptions, Writer
from seqgen.generation.text_batch import Row, prefill
from seqgen.settings import require
from seqgen.wording import ShortRepr

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.sources import Vectors


@dataclass(frozen=True)
class Suggestion:
    """Record of `seqgen sample --suggest K --json`: one probable next token.

    `probability` is the token's among those that can be written, `logprob` the model's own.
    """

    index: int
    rank: int
    prompt: str
    token: int
    text: str
    probability: float
    logprob: float
    model: str


@dataclass(frozen=True)
class Candidate:
    """Token that was possible at one step, with its probability before and after filters.

    Attributes:
        token: its id.
        text: what a person sees of it.
        probability: the model's own.
        after: what the filters left of it; 0 if one removed it.
        removed_by: that filter's name.
    """

    token: int
    text: str
    probability: float
    after: float
    removed_by: str | None


@dataclass(frozen=True)
class FilteredTokens:
    """Tokens that one filter removed: their number, mass and most probable members."""

    filter: str
    count: int
    mass: float
    tokens: list[str]


@dataclass(frozen=True, repr=False)
class Explanation(ShortRepr):
    """Record of `seqgen sample --explain --json`: one token of one text."""

    index: int
    sample: int
    step: int
    token: int
    text: str
    probability: float
    logprob: float
    candidates: list[Candidate]
    removed: list[FilteredTokens]
    seed: int
    model: str


def suggest(
    loaded: LoadedModel, prompts: Iterable[str | Vectors], count: int, batch_size: int = 32
) -> Iterator[Suggestion]:
    """Yield the `count` most probable next tokens of each prompt, most probable first.

    Raises:
        UsageError: `count` is below 1.
        SeqgenError: a prompt has something the model does not know.
    """
    require(count >= 1, f"--suggest must be at least 1, not {count}")
    for batch in batches(loaded, prompts, batch_size):
        histories = [prompt.tokens for prompt in batch]
        model_log_probs = normalise(
            prefill(loaded.model, histories, *open_sources(loaded, batch))[0]
        )  # (B, V)
        allowed = Forbid(loaded.never)(histories, model_log_probs)
        for row, prompt in enumerate(batch):
            for rank, token in enumerate(_likeliest(allowed[row], count)):
                yield Suggestion(
                    index=prompt.index,
                    rank=rank,
                    prompt=prompt.text,
                    token=token,
                    text=piece(loaded, token),
                    probability=math.exp(allowed[row, token]),
                    logprob=model_log_probs[row, token].item(),
                    model=loaded.stored.name,
                )


def explain(
    loaded: LoadedModel,
    prompts: Iterable[str | Vectors],
    options: SampleOptions,
    candidates: int = 10,
) -> Iterator[Explanation]:
    """Sample one text at a time, and yield an explanation of each token.

    Args:
        loaded: the model.
        prompts: what to go on from.
        options: how to write; of `best_of` texts every one is shown.
        candidates: how many of the likeliest tokens to show, before and after the filters.

    Raises:
        SeqgenError: a prompt has something the model does not know.
    """
    writer = Writer(loaded, options)
    for _, prompt_rows, opens in writer.batches(prompts, 1):
        for row in prompt_rows:
            seen: list[Explanation] = []

            def watch(rows: Sequence[Row], step: int, stages: Sequence, chosen: Sequence) -> None:
                one = [stage[0] for stage in stages]
                seen.append(_explained(writer, rows[0], step, one, chosen[0], candidates))  # noqa: B023

            for _ in writer.steps([row], watch, opens):
                yield from seen
                seen.clear()


def _explained(
    writer: Writer, row: Row, step: int, stages: Sequence[np.ndarray], token: int, count: int
) -> Explanation:
    """Explain one step from its log-probabilities (V,) before and after each filter."""
    model_log_probs, final = stages[0], stages[-1]
    removed_by: dict[int, str] = {}
    removed = []
    for processor, before, after in zip(writer.processors, stages, stages[1:], strict=False):
        gone = np.flatnonzero((before > IMPOSSIBLE) & (after == IMPOSSIBLE)).tolist()
        name = type(processor).name
        removed_by.update(dict.fromkeys(gone, name))
        if gone:
            first = sorted(gone, key=lambda v: (-before[v].item(), v))[:count]
            texts = [piece(writer.loaded, v) for v in first]
            mass = float(np.exp(before[gone]).sum())
            removed.append(FilteredTokens(name, len(gone), mass, texts))
    shown = dict.fromkeys([*_likeliest(model_log_probs, count), *_likeliest(final, count), token])
    candidates = [
        Candidate(
            token=v,
            text=piece(writer.loaded, v),
            probability=math.exp(model_log_probs[v]),
            after=math.exp(final[v]),
            # What is forced comes back, whatever took it away before.
            removed_by=removed_by.get(v) if final[v] == IMPOSSIBLE else None,
        )
        for v in sorted(shown, key=lambda v: (-model_log_probs[v].item(), v))
    ]
    return Explanation(
        index=row.prompt,
        sample=row.sample,
        step=step,
        token=token,
        text=piece(writer.loaded, token),
        probability=math.exp(model_log_probs[token]),
        logprob=model_log_probs[token].item(),
        candidates=candidates,
        removed=removed,
        seed=writer.options.seed,
        model=writer.loaded.stored.name,
    )


def piece(loaded: LoadedModel, token: int) -> str:
    """Format a token for display."""
    return loaded.tokenizer.pieces([token])[0]


def _likeliest(log_probs: np.ndarray, count: int) -> list[int]:
    """Find the most probable ids of (V,) with nonzero probability; ties go to the smaller id."""
    order = likeliest(log_probs)[:count].tolist()
    return [token for token in order if log_probs[token] > IMPOSSIBLE]
