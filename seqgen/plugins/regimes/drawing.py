"""Sampling tokens during training: without a graph, with counter-based random numbers.

Tokens are discrete, so no gradient flows through them: the model writes first, as decoding does,
and one training call on what it wrote has the whole gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from seqgen.hashing import uniforms
from seqgen.text.batches import IGNORED
from seqgen.training.regimes.base import Rows, StepProgress

if TYPE_CHECKING:
    from seqgen.models.base import NeuralLanguageModel
    from seqgen.models.state import State

REGIME = 6  # the first word of the hash that draws tokens and coins
TOKEN, COIN = range(2)  # its last word: what is drawn

# Logits (B, V) and the column t -> the token of each row, (B,).
Pick = Callable[[np.ndarray, int], np.ndarray]


@contextlib.contextmanager
def decoding_mode(model: NeuralLanguageModel) -> Iterator[None]:
    """Put a model in decoding mode within the block: no dropout, gradients or random state."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def open_rows(model: NeuralLanguageModel, rows: Rows, repeat: Sequence[int] | None = None) -> State:
    """Open a decoding state before the given rows.

    Args:
        model: the model.
        rows: with their sources, or their past, of which it is a copy.
        repeat: take these rows, in this order; None for each once.
    """
    repeat = list(range(len(rows.batch.tokens))) if repeat is None else repeat
    if rows.batch.source is not None:
        return model.start(model.remember(rows.batch.source).select(repeat))
    if rows.past is None:
        return model.start(len(repeat))
    # A state may be in bf16; what is written is computed in the parameters' type.
    kind = model.head.weight.dtype
    state = rows.past.map(lambda x: x.to(kind) if x.is_floating_point() else x)
    return state.select(repeat)


def coins(seed: int, progress: StepProgress, rows: int, column: int | np.ndarray) -> np.ndarray:
    """Draw counter-based uniform numbers, one for each row and column."""
    numbers = progress.first_row + np.arange(rows)[:, None]
    return uniforms(REGIME, seed, progress.step, numbers, column, COIN)


def sampler(
    seed: int, progress: StepProgress, rows: int, samples: int, never: Sequence[int]
) -> Pick:
    """Make a function that samples tokens from softmax(logits), row by row.

    Args:
        seed: of the run.
        progress: of the step.
        rows: B; the draws of each depend on its number in the step's batch, not on its part.
        samples: rows of each row, one below the other.
        never: the ids that are never written.
    """
    numbers = np.repeat(progress.first_row + np.arange(rows), samples)
    which = np.tile(np.arange(samples), rows)

    def pick(logits: np.ndarray, column: int) -> np.ndarray:
        draws = uniforms(REGIME, seed, progress.step, numbers, column, TOKEN, which)
        return sample_by_cdf(mask_banned(logits, never), draws)

    return pick


def greedy(never: Sequence[int]) -> Pick:
    """Make a function that picks the most probable token; ties go to the smallest id."""
    return lambda logits, column: mask_banned(logits, never).argmax(-1)


def mask_banned(logits: np.ndarray, never: Sequence[int]) -> np.ndarray:
    """Convert logits (B, V) to float64 and mask the banned ids."""
    logits = logits.astype(np.float64)
    logits[:, list(never)] = -np.inf
    return logits


def sample_by_cdf(logits: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Sample by the inverse CDF: the first token whose cumulative probability exceeds the draw.

    Args:
        logits: (B, V) in float64.
        draws: (B,), in [0, 1).
    """
    cumulated = np.exp(logits - logits.max(-1, keepdims=True)).cumsum(-1)
    total = cumulated[:, -1]
    # Rounding may make the product equal to the total; then choose the last possible token.
    reached = np.minimum(draws * total, np.nextafter(total, 0.0))
    return (cumulated <= reached[:, None]).sum(-1)


def feed_back(
    model: NeuralLanguageModel, state: State, tokens: np.ndarray, real: np.ndarray, pick: Pick
) -> np.ndarray:
    """Replace some real tokens by the model's own predictions, column by column.

    Each is chosen after all that stands before it, own tokens included.

    Args:
        model: in `decoding_mode`.
        state: before the rows; used up.
        tokens: (B, T), the real ones.
        real: (B, T) of bool: which of them stay; the first of a row always does.
        pick: chooses the others.
    """
    if real[:, 1:].all():
        return tokens
    mixed, first = tokens.copy(), 1 + int((~real[:, 1:]).any(0).argmax())
    read = torch.from_numpy(tokens[:, :first]).to(model.device)
    logits, state = model(read, state, 1)
    logits = logits[:, 0].cpu().numpy()
    last = int(np.flatnonzero((~real).any(0))[-1])
    for column in range(first, last + 1):
        if column > first:
            logits, state = model.step(mixed[:, column - 1].tolist(), state)
        if not real[:, column].all():
            drawn = pick(logits, column)
            mixed[:, column] = np.where(real[:, column], tokens[:, column], drawn)
    return mixed


def continue_prompts(
    model: NeuralLanguageModel,
    state: State,
    tokens: np.ndarray,
    prompts: np.ndarray,
    most: np.ndarray,
    end: int | None,
    pick: Pick,
) -> np.ndarray:
    """Generate a continuation (B, L) of each prompt, padded with IGNORED.

    Args:
        model: in `decoding_mode`.
        state: before the prompts; used up.
        tokens: (B, T), rows that begin with their prompts.
        prompts: (B,), the length of each prompt, at least 1.
        most: (B,), how many tokens each may have.
        end: the token after which a row ends; None if there is none.
        pick: chooses each token; columns count from the prompt's first.
    """
    column = int(prompts.min())
    logits, state = model(torch.from_numpy(tokens[:, :column]).to(model.device), state, 1)
    logits = logits[:, 0].cpu().numpy()
    written = np.full((len(tokens), max(1, int(most.max()))), IGNORED)
    going = most > 0
    while going.any():
        read, nth = pick(logits, column), column - prompts  # nth < 0: still in the prompt
        own = going & (nth >= 0)
        written[own, nth[own]] = read[own]
        going &= (nth < 0) | ((nth + 1 < most) & ((read != end) if end is not None else True))
        if (nth < 0).any():
            read = np.where(nth < 0, tokens[:, column], read)
        column += 1
        if going.any():
            logits, state = model.step(read.tolist(), state)
    return written[:, : max(1, int((written != IGNORED).sum(1).max()))]
