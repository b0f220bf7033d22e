"""What a written text costs beside the real one: from 0 for the same to 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from seqgen.data.batches import IGNORED
from seqgen.metrics.bleu import BleuOptions
from seqgen.training.regimes.base import OwnText

# Ids written, ids of the real text -> the cost.
Cost = Callable[[Sequence[int], Sequence[int]], float]


def cost_of(name: str, own_text: OwnText) -> Cost:
    """Return the cost that is called `name`: bleu, chrf or edit."""
    if name == "edit":
        return edit_cost
    metric = BleuOptions(metric=name).build(sentences=True)

    def cost(written: Sequence[int], wanted: Sequence[int]) -> float:
        texts = own_text.decode(written), own_text.decode(wanted)
        if texts[0] == texts[1]:
            return 0.0  # sacreBLEU gives two empty texts no score
        return 1 - metric.sentence_score(texts[0], [texts[1]]).score / 100

    return cost


def edit_cost(written: Sequence[int], wanted: Sequence[int]) -> float:
    """Return the edit distance of two sequences (Levenshtein 1966) over the longer one's length."""
    if not written or not wanted:
        return float(len(written) != len(wanted))
    row = np.arange(len(wanted) + 1)  # distances of the empty beginning
    target, places = np.asarray(wanted), np.arange(len(wanted) + 1)
    for token in written:
        kept = np.append(row[0] + 1, np.minimum(row[:-1] + (target != token), row[1:] + 1))
        # An insertion costs one more than what stands before it, however many there are.
        row = np.minimum.accumulate(kept - places) + places
    return int(row[-1]) / max(len(written), len(wanted))


def costs(cost: Cost, written: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the cost of every written text, (B, K).

    Args:
        cost: of one.
        written: (B, K, L), IGNORED where a text has ended.
        wanted: (B, N), the real ones, IGNORED likewise, also before they begin.
    """
    return np.array(
        [
            [cost(_ids(text), real) for text in texts]
            for texts, real in zip(written, map(_ids, wanted), strict=True)
        ]
    )


def _ids(row: np.ndarray) -> list[int]:
    return row[row != IGNORED].tolist()
