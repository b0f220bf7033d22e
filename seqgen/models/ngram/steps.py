"""One-token steps of an n-gram model for a few rows: one look-up per order."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from seqgen.models.arrays import ArrayModel
from seqgen.models.inference import LOGITS_AT_ONCE

# The ids of the n-grams that a text ends with, of orders 1 to N - 1; -1 for what is not stored.
Ids = Sequence[int]
# The distributions of contexts this short are kept on the way to those of longer ones: there are
# few of them, and they return often.
SHORT = 2
# So few words are written one by one in less time than by one call of NumPy.
FEW_WORDS = 8


class NGramSteps:
    """N-gram tables with an index of where each context's n-grams begin.

    The n-grams of order n that continue one context stand together in its table, so that looking
    a word up after a context is a search among the few words seen there.

    Args:
        model: an `NGramArrays`, whose tables do not change any more.
    """

    def __init__(self, model: ArrayModel) -> None:
        self.size, self.replaces = model.vocab_size, model.replaces
        self.log_probs, self.keys = model.log_probs, model.keys
        # Reading single numbers from a memory view takes half the time of reading an array's.
        self.backoffs = [None, *map(memoryview, model.backoffs[1:])]
        self.single_log_probs = [None, *map(memoryview, model.log_probs[1:])]
        self.sorted = [None, None, *map(memoryview, model.keys[2:])]
        native = model.native
        begins = native.begins if native else [self._begins(n) for n in range(2, model.order + 1)]
        self.begins = [None, None, *map(memoryview, begins)]
        self._rows: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()

    def _begins(self, n: int) -> np.ndarray:
        """Index where the n-grams of order n that extend each shorter one begin, and their end."""
        contexts = self.keys[n] // self.size
        counts = np.bincount(contexts, minlength=self.log_probs[n - 1].size)
        return np.concatenate([np.zeros(1, dtype=np.int64), counts.cumsum()])

    def after(self, ids: Ids, word: int) -> Ids:
        """Find the ids of the n-grams of orders 1 to N - 1 that end with a new word."""
        if not ids:
            return ids
        after = [word]
        for n, context in enumerate(ids[:-1], start=2):
            if context < 0:
                after.append(-1)
                continue
            keys, begins, key = self.sorted[n], self.begins[n], context * self.size + word
            end = begins[context + 1]
            at = bisect_left(keys, key, begins[context], end)
            after.append(at if at < end and keys[at] == key else -1)
        return after

    def row(self, ids: Ids) -> np.ndarray:
        """Compute the log-probabilities (V,) after a context; the result is read-only."""
        known, row, missing = self._rows, self.log_probs[1], []
        for n in range(len(ids), 0, -1):
            if ids[n - 1] >= 0:
                kept = known.get((n, ids[n - 1]))
                if kept is not None:
                    row = kept
                    break
                missing.append(n)
        is_copy = False  # whether `row` was made here and is not kept
        for n in reversed(missing):
            row = self._longer(row, n, ids[n - 1], is_copy)
            is_copy = n > SHORT and n != missing[0]
            if not is_copy:
                known[n, ids[n - 1]] = row
        while len(known) > max(1, LOGITS_AT_ONCE // self.size):
            known.popitem(last=False)
        return row

    def _longer(self, lower: np.ndarray, n: int, context: int, in_place: bool) -> np.ndarray:
        """Compute the log-probabilities (V,) after n words from those after the last n - 1.

        They follow order by order, so that they are the same to the last bit whichever of the
        shorter contexts' were kept.
        """
        weight = self.backoffs[n][context]
        if not self.replaces:
            if in_place:
                row = lower
                row += weight
            else:
                row = lower + weight
        elif weight < 0:  # see `NGramArrays.back_off`
            row = np.where(lower > -np.inf, lower.dtype.type(weight), lower)
        else:
            row = lower if in_place else lower.copy()
        begins = self.begins[n + 1]
        begin, end = begins[context], begins[context + 1]
        first = context * self.size  # the key of the context with word 0
        if end - begin <= FEW_WORDS:
            keys, log_probs = self.sorted[n + 1], self.single_log_probs[n + 1]
            for at in range(begin, end):
                row[keys[at] - first] = log_probs[at]
        else:
            row[self.keys[n + 1][begin:end] - first] = self.log_probs[n + 1][begin:end]
        return row
