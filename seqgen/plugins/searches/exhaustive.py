"""Exhaustive search for tiny vocabularies and lengths, which tests beam search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqgen.engines.ops import without_gradients
from seqgen.generation.hypotheses import Hypothesis
from seqgen.generation.processors import IMPOSSIBLE, History, before_and_after, normalise
from seqgen.generation.text_batch import prefill
from seqgen.settings import require

if TYPE_CHECKING:
    from seqgen.generation.beam_groups import Ending
    from seqgen.models.inference import InferenceModel
    from seqgen.models.state import Opens, State

MOST = 1_000_000


@without_gradients
def exhaustive(
    model: InferenceModel, ending: Ending, opens: Opens | None = None
) -> list[Hypothesis]:
    """Score every text that the filters allow, and return the n best, best first.

    Nothing is pruned: the tree is walked depth first. `opens` opens a state for the source's
    handle; None for a model that has no sources.

    Raises:
        UsageError: there may be more than a million texts.
    """
    rules = ending.rules
    # Two tokens make more than a million texts of 20, and large powers take their time.
    texts = model.vocab_size ** min(ending.max_tokens, 20)
    require(
        texts <= MOST,
        f"--exhaustive would try up to {model.vocab_size} ^ {ending.max_tokens} texts; "
        f"at most {MOST:,} are allowed, so lower --max-tokens or use --beams",
    )
    logits, state = prefill(model, [ending.source.tokens], opens, [ending.source.handle])
    if ending.max_tokens == 0:
        return [Hypothesis(score=0.0, finish_reason=rules.at_limit)]
    prompt, finished = ending.source.tokens, []

    def walk(parent: Hypothesis, logits: np.ndarray, state: State) -> None:
        """Finish every text that begins with `parent`, whose next logits (1, V) these are."""
        history = [History(prompt + parent.tokens, len(prompt), overlap=ending.source.overlap)]
        log_probs, left = before_and_after(
            rules.processors, history, normalise(logits), rules.outcomes
        )
        for token in np.flatnonzero(left[0] > IMPOSSIBLE).tolist():
            logprob = parent.logprob + log_probs[0, token].item()
            child = Hypothesis((*parent.tokens, token), logprob)
            reason = ending(parent, token)
            if reason is None and len(child.tokens) == ending.max_tokens:
                reason = rules.at_limit
            if reason:
                rules.finish(child, reason)
                ending.penalise(child)
                finished.append(child)
            else:
                walk(child, *model.step([token], state.copy()))

    walk(Hypothesis(), logits, state)
    return sorted(finished, key=lambda h: h.rank)[: rules.options.nbest]
