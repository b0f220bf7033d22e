"""Katz backoff with Good-Turing discounts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqgen.training.counting import FALLBACK, ROUNDING, NGramEstimate, Rule, backoff_weights
from seqgen.training.sorted_runs import Counts, GramBlock

# Counts up to this are discounted.
KATZ = 5


def katz(estimate: NGramEstimate, n: int, grams: Counts) -> Rule:
    """Katz backoff (1987) with Good-Turing discounts.

    p(w | c) = d_r r / count(c) for r = count(c w) > 0, and a(c) p(w | c without its first word) for
    others, where d_r is 1 for r > 5 and a(c) makes the sum 1. What single words lose is shared by
    those never seen. If counts of counts give no discounts, 0.5 is subtracted from each count.
    Where a context has counts above 5 alone, count(c) is one more, so that something is left.
    """
    factors = _good_turing(grams.frequencies("raw", KATZ + 1))
    if factors is None:
        estimate.fallbacks.append(n)
    estimate.discounts.append([FALLBACK[0]] if factors is None else factors)

    def rule(block: GramBlock, lower: np.ndarray) -> Sequence[np.ndarray]:
        raw, of = block.read("raw"), block.of
        kept = block.read("kept") & (raw > 0)
        if factors is None:
            lost = np.minimum(raw, FALLBACK[0])
        else:
            lost = raw * (1 - np.array([1, *factors, 1])[np.minimum(raw, KATZ + 1)])
        total = np.maximum(block.total(raw), 1)
        probs = np.where(kept, raw - lost, 0) / total[of]
        if n == 1:
            unseen = estimate.possible & (raw == 0)
            left = 1 - probs.sum()
            some = unseen.any()
            return [probs + left * unseen / unseen.sum() if some else probs / probs.sum()]
        given, taken = block.total(probs), block.total(np.where(kept, lower, 0))
        # Where every word was seen, no other word can get what the discounts have left.
        whole = (1 - taken <= ROUNDING) & (given > 0)
        # Counts above 5 alone lose nothing: one more is counted, of what was not seen (SRILM).
        stuck = (1 - given <= ROUNDING) & ~whole
        given = np.where(stuck, given * total / (total + 1), given)
        probs *= np.where(stuck, total / (total + 1), 1 / np.where(whole, given, 1))[of]
        backoffs = backoff_weights(np.where(whole, 1, given), taken)
        return np.where(kept, probs, backoffs[of] * lower), backoffs

    return rule


def _good_turing(frequencies: np.ndarray) -> list[float] | None:
    """Compute the Good-Turing discounts d_1 to d_5 (Katz 1987, eq. 15); None if undefined.

    Args:
        frequencies: how many n-grams were seen 0 to 6 times.
    """
    n = frequencies.astype(float)
    if not n[1:].all():
        return None
    r = np.arange(1, KATZ + 1)
    beyond = (KATZ + 1) * n[KATZ + 1] / n[1]
    factors = ((r + 1) * n[r + 1] / (r * n[r]) - beyond) / (1 - beyond) if beyond != 1 else r * 0
    return factors.tolist() if ((factors > 0) & (factors < 1)).all() else None
