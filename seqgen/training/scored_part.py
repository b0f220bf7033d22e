"""Parts of a held-out text: what weights are fitted on, and how much of the rest is scored."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

from seqgen.metrics.perplexity import ScoreTotals
from seqgen.models.inference import InferenceModel
from seqgen.scoring.evaluate import begin_of_part, held_out_text
from seqgen.scoring.loop import parallel_rows
from seqgen.scoring.mixture_fitting import FittedByHalves, fit_by_halves
from seqgen.scoring.perplexity import for_model, totals_of
from seqgen.store.loaded import LoadedModel

# Characters on which a model's scoring speed is measured: few, and more where these take less than
# a share of the time. The shortest part that is scored, unless the text is shorter.
TRIED_CHARACTERS, TRIED_SHARE, SHORTEST_PART = (100, 500, 2500), 0.04, 2000
# Tokens on which weights are fitted first, to see how long that takes, and at most; the most rows
# that they are read in, and the fewest tokens of a row.
FITTED_FIRST, MOST_FITTED, MOST_ROWS, LEAST_ROW = 2500, 1 << 20, 32, 256
# Each fit is on so many times the tokens of the one before, at most; on enough for a gate, a token
# takes about so many times as long.
GROWTH, GATED_COST = 3, 4

Result = TypeVar("Result")


def fit_within(fit: Callable[[int], Result], size: int, seconds: float) -> Result:
    """Fit on as much of a text as a time allows.

    Fitting on a small part shows how much that is. Larger parts follow, as long as the next one
    would be twice as large or all.

    Args:
        fit: takes how many tokens to fit on.
        size: of the text.
        seconds: the time, which may be infinite.
    """
    if math.isinf(seconds) or size <= FITTED_FIRST:
        return fit(size)
    end = time.monotonic() + seconds
    tokens, cost = FITTED_FIRST, GATED_COST
    while True:
        began = time.monotonic()
        fitted = fit(tokens)
        now = time.monotonic()
        possible = min(size, GROWTH * tokens, int(tokens * (end - now) / (cost * (now - began))))
        if tokens == size or possible < min(size, 2 * tokens):
            return fitted
        tokens, cost = possible, 1


def fit_on_first_half(
    loaded: LoadedModel, models: Sequence[InferenceModel], seconds: float
) -> tuple[FittedByHalves | None, int]:
    """Fit a mixture on the first half of the held-out text, or on as much of it as a time allows.

    A stream is then read in short rows from all over that half: a single passage may be a list or
    a table, on which neither part is as good or as bad as usual.

    Args:
        loaded: whose held-out text it is, and whose tokens.
        models: the parts of the mixture; see `fit_by_halves`.
        seconds: see `fit_within`.

    Returns:
        The weights, None if there are too few tokens; and where the other half begins, on which
        nothing was fitted.

    Raises:
        SeqgenError: there is no held-out text.
    """
    text = held_out_text(loaded, whole=True)
    half = begin_of_part(text, 0.5, loaded.data.documents)
    first = loaded.encode([text[:half]])
    size = min(first.tokens.size, MOST_FITTED)

    def fit_on(tokens: int) -> FittedByHalves | None:
        """Fit on so many tokens of the first half."""
        if size < 2:
            return None
        rows = min(MOST_ROWS, max(1, tokens // LEAST_ROW))
        whole = tokens == first.tokens.size
        some = first if whole else parallel_rows(first, rows, -(-tokens // rows))
        if some.tokens.size < 2 and tokens < size:  # an empty document before a long one
            return fit_on(min(size, 2 * tokens))
        return fit_by_halves(models, some, loaded.data.direction)

    return fit_within(fit_on, size, seconds), half


def score_alone(parts: Sequence[LoadedModel], begin: int) -> list[ScoreTotals]:
    """Score the parts of a model on its held-out text, from a character on."""
    text = held_out_text(parts[0], whole=True)[begin:]
    return [totals_of(one, [text], for_model(one))[0] for one in parts]


def affordable_share(loaded: LoadedModel, text: str, seconds: float) -> float:
    """Estimate how much of a text can be scored in a time: 1, 1/2, 1/4 ... of it.

    Args:
        loaded: a language model, whose speed on the beginning of the text is measured.
        text: the text.
        seconds: the time, which may be infinite.
    """
    share, needed = 1.0, 0.0
    if not math.isinf(seconds):
        needed = len(text) * _seconds_per_character(loaded, text, seconds)
    while share * needed > seconds and share * len(text) >= 2 * SHORTEST_PART:
        share /= 2
    return share


def _seconds_per_character(loaded: LoadedModel, text: str, seconds: float) -> float:
    """Measure the speed of scoring on the beginning of a text, in a small share of some seconds.

    What a call takes whatever its length is left out, if two lengths tell it apart.
    """
    before, tried = 0.0, ""
    totals_of(loaded, [text[: TRIED_CHARACTERS[0]]], for_model(loaded))  # sets up
    for length in TRIED_CHARACTERS:
        known, tried = len(tried), text[:length]
        began = time.monotonic()
        totals_of(loaded, [tried], for_model(loaded))
        took = time.monotonic() - began
        slope = (took - before) / max(1, len(tried) - known)
        if took > TRIED_SHARE * seconds or len(tried) < length:
            break
        before = took
    return max(slope, took / max(1, len(text)))


@contextlib.contextmanager
def faster_threads(loaded: LoadedModel, text: str, seconds: float) -> Iterator[None]:
    """Compute with one of PyTorch's threads within a block if that scores a text faster.

    A step of one row is so short that threads mostly wait for each other, above all on a machine
    that has other work: there one thread was ten times as fast as two.

    Args:
        loaded: the model.
        text: some text.
        seconds: the time for the block; without a limit nothing is measured or changed.
    """
    threads = torch.get_num_threads()
    if math.isinf(seconds) or threads == 1:
        yield
        return
    try:  # a rough answer is enough, and takes a tenth of the time
        with_all = _seconds_per_character(loaded, text, seconds / 10)
        torch.set_num_threads(1)
        if _seconds_per_character(loaded, text, seconds / 10) > with_all:
            torch.set_num_threads(threads)
        yield
    finally:
        torch.set_num_threads(threads)
