"""What a written text costs beside the real one: from 0 for the same to 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from seqgen.configs.scoring import BleuOptions
from seqgen.data.batches import IGNORED
from seqgen.metrics.bleu import metric_of
from seqgen.training.regimes.base import TextRules

# Ids written, ids of the real text -> the cost.
Cost = Callable[[Sequence[int], Sequence[int]], float]


def cost_of(name: str, text_rules: TextRules) -> Cost:
    """Return the cost that is called `name`: bleu, chrf or edit."""
    if name == "edit":
        return edit_cost
    metric = metric_of(BleuOptions(metric=name), sentences=True)

    def cost(written: Sequence[int], target_ids: Sequence[int]) -> float:
        texts = text_rules.decode(written), text_rules.decode(target_ids)
        if texts[0] == texts[1]:
            return 0.0  # sacreBLEU gives two empty texts no score
        return 1 - metric.sentence_score(texts[0], [texts[1]]).score / 100

    return cost


def edit_cost(written: Sequence[int], target_ids: Sequence[int]) -> float:
    """Return the edit distance of two sequences (Levenshtein 1966) over the longer one's length."""
    if not written or not target_ids:
        return float(len(written) != len(target_ids))
    row = np.arange(len(target_ids) + 1)  # distances of the empty beginning
    target, places = np.asarray(target_ids), np.arange(len(target_ids) + 1)
    for token in written:
        kept = np.append(row[0] + 1, np.minimum(row[:-1] + (target != token), row[1:] + 1))
        # An insertion costs one more than what stands before it, however many there are.
        row = np.minimum.accumulate(kept - places) + places
    return int(row[-1]) / max(len(written), len(target_ids))


def costs(cost: Cost, written: np.ndarray, target_ids: np.ndarray) -> np.ndarray:
    """Return the cost of every written text, (B, K).

    Args:
        cost: of one.
        written: (B, K, L), IGNORED where a text has ended.
        target_ids: (B, N), the real ones, IGNORED likewise, also before they begin.
    """
    return np.array(
        [
            [cost(_ids(text), real) for text in texts]
            for texts, real in zip(written, map(_ids, target_ids), strict=True)
        ]
    )


def _ids(row: np.ndarray) -> list[int]:
    return row[row != IGNORED].tolist()
