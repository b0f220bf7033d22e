"""N-gram models over NumPy arrays: sorted tables of probabilities and backoffs.

However they were smoothed, all are asked in the same way (Katz 1987, in the form of an ARPA
file): for the longest n-gram (context, word) that is stored, its probability; for each longer
context that is stored, its backoff weight on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from seqgen.engines.native.library import library
from seqgen.models.arrays import ArrayModel
from seqgen.models.inference import LOGITS_AT_ONCE
from seqgen.models.ngram.look_ups import NGramLookUps, best_continuations, look_up
from seqgen.models.ngram.native import NativeTables
from seqgen.models.ngram.steps import NGramSteps
from seqgen.models.state import State

if TYPE_CHECKING:
    from seqgen.models.ngram.settings import NGramConfig

# The id of an n-gram that is not stored, and of the words before the start of a text.
NOTHING = -1
# With no more tokens than this a row (V) of probabilities is made as quickly as it is looked up.
QUICK_VOCABULARY = 1024
# Keys that are checked at a time, to limit the memory that this takes.
KEYS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Level:
    """Table of the n-grams of one order n.

    Attributes:
        keys: (M,) int64, ascending: (id of the first n - 1 words) V + (the last word). An n-gram's
            id is its place here; that of a single word is the word's own.
        log_probs: (M,) the last word's log-probability after the others, in nats.
        backoffs: (M,) the log of what its continuations' lower-order probabilities are scaled
            by, where it is the context; 0 where it has no continuation.
    """

    keys: np.ndarray
    log_probs: np.ndarray
    backoffs: np.ndarray


@dataclass
class NGramState(State):
    """State of an n-gram model: ids (B, N - 1) of the last n-gram of each order.

    `NOTHING` for those that are not stored, as all before the start of a text.
    """

    ids: np.ndarray


class NGramArrays(ArrayModel):
    """N-gram model over tables that may be mapped from a file.

    Args:
        config: order and smoothing.
        tables: `log_probs_n` of every order, `keys_n` from order 2 on, and `backoffs_n` below
            order N; see `Level`.

    Raises:
        ValueError: the tables do not fit each other.
    """

    rows_at_least = 1024
    config: NGramConfig

    def __init__(self, config: NGramConfig, tables: Mapping[str, np.ndarray]) -> None:
        self.config, self.order, self.orders = config, config.order, config.order
        orders = range(1, self.order + 1)
        if tables.keys() != self.shapes(config).keys():
            wrong = sorted(tables.keys() ^ self.shapes(config).keys())
            raise ValueError(f"tensors do not fit: {', '.join(wrong[:3])}")
        self.log_probs = [None, *(tables[f"log_probs_{n}"] for n in orders)]
        self.keys = [None, None, *(tables[f"keys_{n}"] for n in orders[1:])]
        self.backoffs = [None, *(tables[f"backoffs_{n}"] for n in orders[:-1])]
        self._best: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for n in orders:
            size = self.vocab_size if n == 1 else self.keys[n].size
            beside = [self.log_probs[n]] + ([self.backoffs[n]] if n < self.order else [])
            if any(table.shape != (size,) for table in beside):
                raise ValueError(f"the {n}-grams' tables are not of one size")
            if n > 1 and not _are_keys(self.keys[n], self.log_probs[n - 1].size * self.vocab_size):
                raise ValueError(f"the {n}-grams are out of order, or continue what is not stored")

    @property
    def dtype(self) -> np.dtype:
        """Data type of the probabilities."""
        return self.log_probs[1].dtype

    def parameter_count(self) -> int:
        """Count the probabilities and backoffs."""
        return sum(table.size for table in self.log_probs[1:] + self.backoffs[1:])

    @staticmethod
    def shapes(config: NGramConfig) -> dict[str, tuple[int | None, ...]]:
        """List the shape of every table by name; None stands for any size."""
        sizes = {n: config.vocab_size if n == 1 else None for n in range(1, config.order + 1)}
        return {
            **{f"log_probs_{n}": (size,) for n, size in sizes.items()},
            **{f"keys_{n}": (size,) for n, size in sizes.items() if n > 1},
            **{f"backoffs_{n}": (size,) for n, size in sizes.items() if n < config.order},
        }

    @property
    def levels(self) -> list[Level]:
        """Tables of every order, 1 to N."""
        levels = []
        for n in range(1, self.order + 1):
            keys = np.arange(self.vocab_size) if n == 1 else self.keys[n]
            backoffs = self.backoffs[n] if n < self.order else np.zeros(keys.size)
            wide = (x.astype(np.float64) for x in (self.log_probs[n], backoffs))
            levels.append(Level(keys, *wide))
        return levels

    @cached_property
    def steps(self) -> NGramSteps:
        """Tables with an index for one-token steps."""
        return NGramSteps(self)

    @cached_property
    def native(self) -> NativeTables | None:
        """Tables for the compiled library; None without it or in float64."""
        if library() is None or self.dtype != np.float32:
            return None
        return NativeTables(self)

    @cached_property
    def drawer(self) -> NGramDrawer | None:
        # Where weights replace what they back off to, masses do not add up.
        return None if self.native is None or self.replaces else NGramDrawer(self)

    @property
    def replaces(self) -> bool:
        """Whether backoffs are log-probabilities of unseen words instead of addends (add-delta)."""
        return self.config.smoothing == "add-delta"

    def start(self, batch: int, stride: int | None = None) -> NGramState:
        return NGramState(np.full((batch, self.order - 1), NOTHING))

    def __call__(
        self, tokens: np.ndarray, state: NGramState | None = None, last: int | None = None
    ) -> tuple[np.ndarray, NGramState | None]:
        rows, length = tokens.shape
        kept = length if last is None else min(last, length)
        contexts = self.contexts(tokens, state, kept)
        logits = self.distributions([ids.ravel() for ids in contexts], rows * kept)
        return logits.reshape(rows, kept, -1), _after(contexts, state)

    def step(self, tokens: Sequence[int], state: NGramState) -> tuple[np.ndarray, NGramState]:
        if self.native is not None:
            logits, ids = self.native.step(tokens, state.ids)
            return logits, NGramState(ids)
        steps, pairs = self.steps, zip(state.ids.tolist(), tokens, strict=True)
        ids = [steps.after(before, int(token)) for before, token in pairs]
        rows = [steps.row(each) for each in ids]
        # The rows are kept by `steps`, so nobody else may write in them.
        logits = rows[0][None].copy() if len(rows) == 1 else np.stack(rows)
        return logits, NGramState(np.array(ids, np.int64).reshape(len(ids), -1))

    def matched(self, tokens: np.ndarray, state: NGramState | None) -> np.ndarray:
        """Compute the length of the longest stored context at each token (B, T), 0 to N - 1."""
        lengths = np.zeros_like(tokens)
        for n, ids in enumerate(self.contexts(tokens, state, tokens.shape[1]), start=1):
            lengths[ids >= 0] = n
        return lengths

    def matched_by(self, state: NGramState) -> np.ndarray:
        """Compute the length of the longest stored context of each row (B,) of a state."""
        if self.native is not None:
            return self.native.matched(state.ids)
        return np.maximum.reduce((state.ids >= 0) * np.arange(1, self.order), 1, initial=0)

    def contexts(self, tokens: np.ndarray, state: NGramState | None, kept: int) -> list[np.ndarray]:
        """Find for n = 1 to N - 1 the ids (B, `kept`) of the n-grams that end at the last tokens.

        Args:
            tokens: (B, T).
            state: of what came before; None where nothing did.
            kept: of so many tokens.
        """
        needed = kept + max(0, self.order - 2)
        if needed < tokens.shape[1]:
            tokens, state = tokens[:, -needed:], None
        return [ids[:, -kept:] for ids in self.nodes(tokens, self.order - 1, state)]

    def nodes(
        self, words: np.ndarray, order: int, state: NGramState | None = None
    ) -> list[np.ndarray]:
        """Find the ids of all n-grams of a text.

        Args:
            words: (B, L).
            order: the longest n-grams to look for.
            state: of what came before; None where nothing did.

        Returns:
            For n = 1 to `order`, the id of the n-gram that ends at each word, (B, L); `NOTHING`
            where it is not stored.
        """
        first = (state or self.start(len(words))).ids
        if self.native is not None:
            return list(self.native.nodes(words, order, first))
        ids_by_order = [words][:order]
        for n in range(2, order + 1):
            before = np.concatenate([first[:, n - 2 : n - 1], ids_by_order[-1][:, :-1]], 1)
            ids_by_order.append(self.find(n, before, words))
        return ids_by_order

    def find(self, n: int, contexts: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Look up the ids of the n-grams (context, word), given the contexts' ids."""
        keys, ids, stored = self.keys[n], np.full(words.shape, NOTHING), contexts >= 0
        if keys.size:
            # Most contexts of the higher orders are not there: no search for these.
            target_keys = contexts[stored] * self.vocab_size + words[stored]
            at = np.minimum(keys.searchsorted(target_keys), keys.size - 1)
            ids[stored] = np.where(keys[at] == target_keys, at, NOTHING)
        return ids

    def back_off(self, lower: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Compute the log-probabilities of words that are unseen after a stored context.

        Args:
            lower: their log-probabilities after the context without its first word.
            weights: the context's backoff, of a shape that broadcasts.
        """
        if not self.replaces:
            return lower + weights
        # Every unseen word has the same share, whatever it has after a shorter context.
        return np.where((weights < 0) & (lower > -np.inf), weights, lower)

    @property
    def quick_ranks(self) -> bool:
        return self.vocab_size <= QUICK_VOCABULARY

    @property
    def most_at_once(self) -> int:
        return LOGITS_AT_ONCE  # numbers for a token, not rows (V)

    def predictions(self, tokens: np.ndarray, state: NGramState) -> tuple[NGramLookUps, NGramState]:
        contexts = self.contexts(tokens, state, tokens.shape[1])
        return NGramLookUps(self, tokens, contexts), _after(contexts, state)

    def backoffs_of(self, n: int, contexts: np.ndarray) -> np.ndarray:
        """Look up the backoffs of contexts of n words; 0 if a context is not stored."""
        return look_up(self.backoffs[n], contexts, self.log_probs[1].dtype.type(0))

    def best_continuations(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Find each context's most probable stored next word and its log-probability."""
        if n not in self._best:
            count = self.log_probs[n - 1].size
            tables = self.keys[n], self.log_probs[n]
            self._best[n] = best_continuations(*tables, count, self.vocab_size)
        return self._best[n]

    def distributions(self, contexts: list[np.ndarray], count: int) -> np.ndarray:
        """Compute the log-probabilities (M, V) after `count` contexts, natively if possible.

        Args:
            contexts: for n = 1 to N - 1, the ids (M,) of their last n words.
            count: M.
        """
        # Contexts that share their longest stored part share their distribution.
        longest = np.zeros(count, np.int64)
        for n, ids in enumerate(contexts, start=1):
            longest = np.where(ids >= 0, ids * self.order + n, longest)
        order = np.argsort(longest, kind="stable")
        new = np.ones(count, bool)
        np.not_equal(longest[order[1:]], longest[order[:-1]], out=new[1:])
        firsts = order[new]
        rows = self.make_rows([ids[firsts] for ids in contexts], firsts.size)
        which = np.empty(count, np.int64)
        which[order] = np.cumsum(new) - 1
        return rows[which]

    def make_rows(self, contexts: list[np.ndarray], count: int) -> np.ndarray:
        """Compute the log-probabilities (M, V) after `count` contexts in NumPy."""
        size = self.vocab_size
        rows = np.tile(self.log_probs[1], (count, 1))  # (M, V)
        for n, ids in enumerate(contexts, start=2):
            rows = self.back_off(rows, self.backoffs_of(n - 1, ids)[:, None])
            row, keys = np.flatnonzero(ids >= 0), self.keys[n]
            begin = keys.searchsorted(ids[row] * size)
            counts = keys.searchsorted((ids[row] + 1) * size) - begin
            at = np.arange(counts.sum())
            at += np.repeat(begin - (counts.cumsum() - counts), counts)
            rows[np.repeat(row, counts), keys[at] % size] = self.log_probs[n][at]
        return rows


class NGramDrawer:
    """Sampler of an n-gram model that draws from the words seen after a context."""

    def __init__(self, model: NGramArrays) -> None:
        self.model, self.native = model, model.native

    def draw(
        self, state: NGramState, uniforms: np.ndarray, never: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        tokens, norms = self.native.draw(state.ids.T, uniforms, never)
        return tokens, self.native.score(state.ids.T, np.maximum(tokens, 0)) - norms

    def logits(self, state: NGramState) -> np.ndarray:
        return self.native.rows(state.ids)

    def read(self, tokens: Sequence[int], state: NGramState) -> NGramState:
        words = np.array(tokens)[:, None]
        ids = self.native.nodes(words, self.model.order - 1, state.ids)  # (N - 1, B, 1)
        return NGramState(ids[:, :, 0].T)


def _after(contexts: Sequence[np.ndarray], state: NGramState | None) -> NGramState | None:
    """Build the state from contexts (B, T); None if there was no state before."""
    if state is None or not contexts:
        return state
    return NGramState(np.stack([ids[:, -1] for ids in contexts], 1))


def _are_keys(keys: np.ndarray, end: int) -> bool:
    """Check that keys (M,) ascend within 0 to `end`; see `Level`."""
    if keys.ndim != 1:
        return False
    pieces = (keys[at : at + KEYS_AT_ONCE + 1] for at in range(0, keys.size, KEYS_AT_ONCE))
    ascend = all(bool((piece[1:] > piece[:-1]).all()) for piece in pieces)
    return not keys.size or (ascend and keys[0] >= 0 and keys[-1] < end)
