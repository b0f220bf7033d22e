"""One more token of a few rows under an n-gram model: one look-up for each order."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from seqgen.models.base import LOGITS_AT_ONCE

if TYPE_CHECKING:
    from seqgen.models.ngram import NGram

Words = tuple[int, ...]
# So many contexts' ids are remembered from one step to the next; a batch has far fewer rows.
MOST_CONTEXTS = 1 << 14


class NGramSteps:
    """An n-gram model's tables as arrays, with the place where each context's n-grams begin.

    The n-grams of order n that continue one context stand together in its table, so that looking
    a word up after a context is a search among the few words seen there.

    It holds views of the model's tensors, so it is neither copied nor pickled.

    Args:
        model: on the CPU; its tables do not change any more.
    """

    def __init__(self, model: NGram) -> None:
        levels = range(1, model.order + 1)
        self.size, self.order = model.vocab_size, model.order
        self.nothing = (-1,) * (self.order - 1)
        self.replaces = model.config.smoothing == "add-delta"
        self.log_probs = [None, *(model.log_probs(n).numpy() for n in levels)]
        self.backoffs = [None, *(model.backoffs(n).numpy() for n in levels[:-1])]
        self.keys = [None, None, *(model.keys(n).numpy() for n in levels[1:])]
        # Reading single numbers from a memory view takes half the time of reading an array's.
        self.sorted = [None, None, *(memoryview(keys) for keys in self.keys[2:])]
        self.begins = [None, None, *(memoryview(self._begins(n)) for n in levels[1:])]
        self._ids: dict[Words, Words] = {}
        self._rows: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(None), ()

    def _begins(self, n: int) -> np.ndarray:
        """Return where the n-grams of order n begin that continue each shorter one, and the end."""
        contexts = self.keys[n] // self.size
        counts = np.bincount(contexts, minlength=self.log_probs[n - 1].size)
        return np.concatenate([np.zeros(1, dtype=np.int64), counts.cumsum()])

    def read(self, words: Words, word: int) -> tuple[Words, Words]:
        """Return the last N - 1 words after one more, and the ids of the last 1 to N - 1 of them.

        Args:
            words: the N - 1 words before; -1 before the start of a text.
            word: what follows them.
        """
        words, ids = (*words, word)[1:], self._after(self._ids_of(words), word)
        if len(self._ids) >= MOST_CONTEXTS:
            self._ids.clear()
        self._ids[words] = ids
        return words, ids

    def _ids_of(self, words: Words) -> Words:
        """Return the ids of the last 1 to N - 1 of N - 1 words."""
        ids = self._ids.get(words)
        if ids is None:
            ids = self.nothing
            for word in words:
                ids = self.nothing if word < 0 else self._after(ids, word)
        return ids

    def matched(self, words: Words) -> int:
        """Return how many of the last of N - 1 words are stored as a context."""
        ids = self._ids_of(words)
        return next((n for n in range(len(ids), 0, -1) if ids[n - 1] >= 0), 0)

    def _after(self, ids: Words, word: int) -> Words:
        """Return the ids of the last 1 to N - 1 words, from those before the last; -1 if unseen."""
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
        return tuple(after)

    def row(self, ids: Words) -> np.ndarray:
        """Return the log-probabilities (V,) after a context, which are not to be written in.

        Args:
            ids: of its last 1 to N - 1 words, as `read` gives them.
        """
        known, row, missing = self._rows, self.log_probs[1], []
        for n in range(len(ids), 0, -1):
            if ids[n - 1] >= 0:
                kept = known.get((n, ids[n - 1]))
                if kept is not None:
                    row = kept
                    break
                missing.append(n)
        for n in reversed(missing):
            row = self._longer(row, n, ids[n - 1])
            known[n, ids[n - 1]] = row
        while len(known) > max(1, LOGITS_AT_ONCE // self.size):
            known.popitem(last=False)
        return row

    def _longer(self, lower: np.ndarray, n: int, context: int) -> np.ndarray:
        """Return the log-probabilities (V,) after n words, from those after the last n - 1."""
        weight = self.backoffs[n][context]
        if not self.replaces:
            row = lower + weight
        elif weight < 0:  # see `NGram.back_off`
            row = np.where(lower > -np.inf, weight, lower)
        else:
            row = lower.copy()
        begins = self.begins[n + 1]
        seen = slice(begins[context], begins[context + 1])
        row[self.keys[n + 1][seen] - context * self.size] = self.log_probs[n + 1][seen]
        return row
