"""Witten-Bell smoothing, and stupid backoff made a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqgen.training.counting import NGramEstimate, Rule, interpolate_counts
from seqgen.training.sorted_runs import Counts, GramBlock


def witten_bell(*_: Any) -> Rule:
    """Interpolated Witten-Bell (Chen and Goodman 1998, section 2.6).

    p(w | c) = (count(c w) + T(c) p(w | c without its first word)) / (count(c) + T(c)), with T(c)
    the number of different words seen after c: the lower order weighs as much as words that were
    new there.
    """

    def rule(block: GramBlock, lower: np.ndarray) -> Sequence[np.ndarray]:
        raw = block.read("raw")
        kinds, total = block.total(raw > 0), block.total(raw)
        share = kinds / np.maximum(kinds + total, 1)
        return interpolate_counts(block, raw, raw * share[block.of], lower)

    return rule


def stupid_backoff(estimate: NGramEstimate, n: int, grams: Counts) -> Rule:
    """Stupid backoff (Brants et al. 2007), divided by its sum over all words.

    S(w | c) = count(c w) / count(c) if that is not 0, else a S(w | c without its first word); a
    word that was never seen has a / V. With Z(c) the sum of S(. | c) over all words,
    p(w | c) = S(w | c) / Z(c).
    """
    factor = estimate.config.backoff
    sums = estimate.sums or estimate.budget.column(float, np.array([factor]))  # Z, without counts a

    def rule(block: GramBlock, lower: np.ndarray) -> Sequence[np.ndarray]:
        lower = lower * factor if n == 1 else lower
        raw = np.where(block.read("kept"), block.read("raw"), 0)
        total = block.total(raw)
        below = sums.take(block.shorter) if n > 1 else sums[:]
        covered = block.total(np.where(raw > 0, lower, 0))
        others = (factor if n > 1 else 1.0) * (below - covered)
        z = np.where(total > 0, 1 + others, 1.0)
        frequency = raw / np.maximum(total, 1)[block.of]
        weights = np.where(total > 0, factor * below / z, 1.0)
        scores = frequency if n > 1 else np.where(raw > 0, frequency, lower)
        return scores / z[block.of], weights, scores, z

    return rule
