"""Exhaustive search, for tiny vocabularies and lengths: the oracle that tests beam search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from seqgen.configs import require
from seqgen.decoding.beam_groups import Ending
from seqgen.decoding.hypotheses import Hypothesis, LengthNorm
from seqgen.decoding.processors import IMPOSSIBLE, History, Processor, normalise
from seqgen.decoding.sampling import Opens, prefill
from seqgen.models.reader import Reader, without_gradients
from seqgen.models.state import State

MOST = 1_000_000


@without_gradients
def exhaustive(
    model: Reader,
    nbest: int,
    norm: LengthNorm,
    processors: Sequence[Processor],
    ending: Ending,
    opens: Opens | None = None,
    outcomes: Processor | None = None,
) -> list[Hypothesis]:
    """Score every text that the processors leave, and return the n best, the best first.

    Nothing is pruned: the tree is walked depth first. `opens` opens a state for the source's
    handle; None for a model that has no sources. `outcomes` is as in `beam.search`.

    Raises:
        UsageError: there may be more than a million texts.
    """
    # Two tokens make more than a million texts of 20, and large powers take their time.
    texts = model.vocab_size ** min(ending.max_tokens, 20)
    require(
        texts <= MOST,
        f"--exhaustive would try up to {model.vocab_size} ^ {ending.max_tokens} texts; "
        f"at most {MOST:,} are allowed, so lower --max-tokens or use --beams",
    )
    logits, state = prefill(model, [ending.source.tokens], opens, [ending.source.handle])
    if ending.max_tokens == 0:
        return [Hypothesis(score=0.0, finish_reason=ending.at_limit)]
    hypotheses = []
    how = processors, ending, outcomes
    for hypothesis, reason in _walk(model, Hypothesis(), logits, state, *how):
        ending.finish(hypothesis, reason, norm)
        ending.penalise(hypothesis)
        hypotheses.append(hypothesis)
    return sorted(hypotheses, key=lambda h: h.rank)[:nbest]


def _walk(
    model: Reader,
    parent: Hypothesis,
    logits: np.ndarray,
    state: State,
    processors: Sequence[Processor],
    ending: Ending,
    outcomes: Processor | None,
) -> Iterator[tuple[Hypothesis, str]]:
    """Yield every text that begins with `parent`, whose next logits (1, V) these are, and its end.

    The state, of one row, is not used up.
    """
    prompt = ending.source.tokens
    history = [History(prompt + parent.tokens, len(prompt))]
    model_log_probs = normalise(logits)
    if outcomes is not None:
        model_log_probs = outcomes(history, model_log_probs)
    filtered = model_log_probs
    for processor in processors:
        filtered = processor(history, filtered)
    for token in np.flatnonzero(filtered[0] > IMPOSSIBLE).tolist():
        logprob = parent.logprob + model_log_probs[0, token].item()
        child = Hypothesis((*parent.tokens, token), logprob)
        reason = ending(parent, token)
        if reason is None and len(child.tokens) == ending.max_tokens:
            reason = ending.at_limit
        if reason:
            yield child, reason
        else:
            after, of_child = model.step([token], state.copy())
            yield from _walk(model, child, after, of_child, processors, ending, outcomes)
