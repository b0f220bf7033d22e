"""The most probable next tokens of a prompt."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seqgen.generation.processors import IMPOSSIBLE, Forbid, likeliest, normalise
from seqgen.generation.prompts import batches, open_sources
from seqgen.generation.text_batch import prefill
from seqgen.settings import require

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
        logits, _ = prefill(loaded.model, histories, *open_sources(loaded, batch))
        model_log_probs = normalise(logits)  # (B, V)
        allowed = Forbid(loaded.never)(histories, model_log_probs)
        for row, prompt in enumerate(batch):
            for rank, token in enumerate(most_probable(allowed[row], count)):
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


def piece(loaded: LoadedModel, token: int) -> str:
    """Format a token for display."""
    return loaded.tokenizer.pieces([token])[0]


def most_probable(log_probs: np.ndarray, count: int) -> list[int]:
    """Find the most probable ids of (V,) with nonzero probability; ties go to the smaller id."""
    order = likeliest(log_probs)[:count].tolist()
    return [token for token in order if log_probs[token] > IMPOSSIBLE]
