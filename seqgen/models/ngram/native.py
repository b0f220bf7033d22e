"""N-gram tables for the compiled library.

What is looked up has the same bits as by NumPy. A token is drawn without a row (V) of
probabilities, and is the one that the row would have given.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from seqgen.engines.native.library import address, library
from seqgen.models.arrays import ArrayModel


class NativeTables:
    """Float32 tables of an `NGramArrays`, with the indexes that the compiled library needs.

    Args:
        model: whose they are.
    """

    def __init__(self, model: ArrayModel) -> None:
        self.size, self.order, self.replaces = model.vocab_size, model.order, model.replaces
        self.log_probs, self.keys, self.backoffs = (
            [np.require(table, requirements="CA") for table in tables]
            for tables in (model.log_probs[1:], model.keys[2:], model.backoffs[1:])
        )
        self.begins = [self._contexts(n) for n in range(2, self.order + 1)]
        self._look_up = self._addresses([])
        self._tables = address(self._look_up)

    def _contexts(self, n: int, best: Sequence[np.ndarray] = ()) -> np.ndarray:
        """Index where each context's n-grams begin, and store its best next word."""
        keys, count = self.keys[n - 2], self.log_probs[n - 2].size
        begins = np.empty(count + 1, np.int64)
        tables = keys.ctypes.data, self.log_probs[n - 1].ctypes.data
        addresses = [x.ctypes.data for x in (begins, *best)] + [0] * (2 - len(best))
        library().ngram_contexts(*tables, keys.size, self.size, count, *addresses)
        return begins

    @cached_property
    def best_continuations(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Best next word and its value after each context, for orders 2 to N."""
        pairs = []
        for n in range(2, self.order + 1):
            count = self.log_probs[n - 2].size
            pairs.append((np.empty(count, np.int64), np.empty(count, np.float32)))
            self._contexts(n, pairs[-1])
        return pairs

    def _addresses(
        self, drawing: Sequence[tuple[np.ndarray, np.ndarray]], cumulated: int = 0
    ) -> np.ndarray:
        """Fill the library's `ngram_tables` structure with addresses."""
        fields = [self.order, self.size, int(self.replaces), cumulated]
        for n in range(self.order):
            tables = [self.log_probs[n], *self.backoffs[n : n + 1]]
            fields += [x.ctypes.data for x in tables] + [0] * (2 - len(tables))
            tables = [self.keys[n - 1], self.begins[n - 1]] if n else []
            tables += drawing[n - 1] if n and drawing else []
            fields += [x.ctypes.data for x in tables] + [0] * (4 - len(tables))
        return np.array(fields, np.int64)

    @cached_property
    def _drawing(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Tables for sampling, with probability sums that are filled when first needed."""
        cumulated = np.exp(self.log_probs[0], dtype=np.float64).cumsum()
        sums = [np.empty(keys.size) for keys in self.keys]
        known = [np.zeros(table.size, np.uint8) for table in self.log_probs[:-1]]
        pairs = list(zip(sums, known, strict=True))
        return self._addresses(pairs, cumulated.ctypes.data), [cumulated, *sums, *known]

    def nodes(self, words: np.ndarray, order: int, first: np.ndarray) -> np.ndarray:
        """Find the ids of all n-grams of words, (order, B, L), after ids `first` (B, N - 1)."""
        words, first = (np.ascontiguousarray(x, np.int64) for x in (words, first))
        ids = np.empty((order, *words.shape), np.int64)
        arrays = map(address, (words, first, ids))
        library().ngram_nodes(self._tables, order, *words.shape, *arrays)
        return ids

    def step(self, tokens: Sequence[int], before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Read a token in each row; return the next log-probabilities (B, V), and the ids after it.

        Args:
            tokens: B.
            before: the ids (B, N - 1) of the n-grams before them.
        """
        words, before = np.array(tokens, np.int64), np.ascontiguousarray(before, np.int64)
        after, rows = (
            np.empty(before.shape, np.int64),
            np.empty((words.size, self.size), np.float32),
        )
        arrays = map(address, (words, before, after, rows))
        library().ngram_step(self._tables, words.size, *arrays)
        return rows, after

    def rows(self, contexts: np.ndarray) -> np.ndarray:
        """Compute the log-probabilities (B, V) after contexts, whose ids are (B, N - 1)."""
        contexts = np.ascontiguousarray(contexts, np.int64)
        rows = np.empty((len(contexts), self.size), np.float32)
        library().ngram_rows(self._tables, len(contexts), address(contexts), address(rows))
        return rows

    def matched(self, contexts: np.ndarray) -> np.ndarray:
        """Compute the length of the longest stored context of each row (B,) of ids (B, N - 1)."""
        contexts = np.ascontiguousarray(contexts, np.int64)
        matched = np.empty(len(contexts), np.int64)
        library().ngram_matched(self._tables, matched.size, address(contexts), address(matched))
        return matched

    def score(self, contexts: Sequence[np.ndarray], words: np.ndarray) -> np.ndarray:
        """Compute the log-probability of each word after its context."""
        words = np.ascontiguousarray(words, np.int64)
        contexts = np.ascontiguousarray(contexts, np.int64)
        log_probs = np.empty(words.shape, np.float32)
        arrays = map(address, (contexts, words, log_probs))
        library().ngram_log_probs(self._tables, words.size, *arrays)
        return log_probs

    def best(
        self, contexts: Sequence[np.ndarray], shape: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the most probable words, and mark uncertain ones; see `NGramLookUps.best`."""
        contexts = np.ascontiguousarray(contexts, np.int64)
        best, unsure = np.empty(shape, np.int64), np.empty(shape, bool)
        pairs = [address(x) for pair in self.best_continuations for x in pair]
        levels, first = np.array(pairs, np.int64), int(self.log_probs[0].argmax())
        arrays = map(address, (contexts, best, unsure))
        tables = self._tables, address(levels)
        library().ngram_best(*tables, best.size, first, *arrays)
        return best, unsure

    def draw(
        self, contexts: np.ndarray, uniforms: np.ndarray, never: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw a word for each row from its uniform random number; see `Drawer.draw`.

        Args:
            contexts: the ids (N - 1, B) of each row's last words.
            uniforms: (B,).
            never: words that are never written, ascending, each once.

        Returns:
            The words (B,), -1 where a row's rounded probabilities are to decide; and the log of
            each row's whole mass, which rounding keeps from 0.
        """
        contexts = np.ascontiguousarray(contexts, np.int64)
        never = np.ascontiguousarray(never, np.int64)
        words, norms = np.empty(uniforms.size, np.int64), np.empty(uniforms.size)
        removed, tables = np.empty(never.size), self._drawing[0]
        given = address(contexts), address(uniforms), address(never)
        made = map(address, (removed, words, norms))
        library().ngram_draw(address(tables), uniforms.size, *given, never.size, *made)
        return words, norms
