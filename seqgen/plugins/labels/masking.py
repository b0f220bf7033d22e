"""Inputs of a masked model: rows framed by [CLS] and [SEP], with some tokens hidden.

A row is [CLS] text [SEP], or [CLS] A [SEP] B [SEP] (Devlin et al. 2019, "BERT: Pre-training of deep
bidirectional transformers for language understanding", section 3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seqgen.hashing import uniforms
from seqgen.text.batches import IGNORED

MASKING = 8  # the first word of the hash that draws here
CHOSEN, FATE, WORD = range(3)  # its last word: what is drawn
# Of the chosen places, how many are hidden, and how many hold a random token instead; the others
# are left as they are, so that the model cannot tell which tokens are real (section 3.1).
HIDDEN, REPLACED = 0.8, 0.1


class Symbols(NamedTuple):
    """The ids of [CLS], [SEP] and [MASK]."""

    cls: int
    sep: int
    mask: int

    @classmethod
    def after(cls, vocab_size: int) -> Symbols:
        """Number the symbols after the last token of a vocabulary."""
        return cls(vocab_size, vocab_size + 1, vocab_size + 2)


@dataclass(frozen=True)
class Framed:
    """Rows of text framed by [CLS] and [SEP].

    Attributes:
        values: (B, L) int64, padded on the right.
        lengths: (B,) int64, symbols included.
        text: (B, L) bool: which of them are tokens of the text.
    """

    values: np.ndarray
    lengths: np.ndarray
    text: np.ndarray


@dataclass(frozen=True)
class MaskedRows:
    """Rows of which some tokens are hidden and must be predicted.

    Attributes:
        values: (B, L) int64, what is read, padded on the right.
        lengths: B of them.
        places: (B, M) int64, what is to be predicted, in the order of the text.
        targets: (B, M) int64, the tokens there; `IGNORED` where a row has fewer places.
    """

    values: np.ndarray
    lengths: list[int]
    places: np.ndarray
    targets: np.ndarray


@dataclass(frozen=True)
class MaskDraws:
    """Seed, step and row number that determine the random numbers of a masked batch.

    Attributes:
        seed: of the run.
        step: of the run.
        first_row: the number of the first row.
    """

    seed: int
    step: int
    first_row: int = 0

    def uniforms(self, shape: tuple[int, ...], what: int) -> np.ndarray:
        """Draw uniform numbers in [0, 1) for all positions of a batch (B, L)."""
        rows = self.first_row + np.arange(shape[0])[:, None]
        return uniforms(MASKING, self.seed, self.step, rows, np.arange(shape[1]), what)


def framed(text: np.ndarray, lengths: np.ndarray, symbols: Symbols) -> Framed:
    """Put [CLS] before each text and [SEP] after it.

    Args:
        text: (B, T) int64, padded on the right.
        lengths: (B,), how many tokens each has.
        symbols: the model's.
    """
    rows, width = text.shape
    values = np.full((rows, width + 2), symbols.sep)
    inside = np.zeros(values.shape, dtype=bool)
    inside[:, 1:-1] = np.arange(width) < lengths[:, None]
    values[:, 0] = symbols.cls
    values[:, 1:-1] = np.where(inside[:, 1:-1], text, symbols.sep)
    return Framed(values, lengths + 2, inside)


def joined(first: Framed, parts: np.ndarray, following: np.ndarray, symbols: Symbols) -> Framed:
    """Build rows [CLS] A [SEP] B [SEP] as long as the framed windows they are made from.

    Args:
        first: the framed windows, all as long.
        parts: (B,), how many tokens of a window are A.
        following: (B, T) int64: a window of text from whose places after A the row takes B.
        symbols: the model's.
    """
    values, width = first.values.copy(), following.shape[1]
    places = np.arange(width) - parts[:, None]  # 0 is the [SEP] between the two
    values[:, 1:-1] = np.where(places < 0, values[:, 1:-1], np.roll(following, 1, axis=1))
    values[:, 1:-1][places == 0] = symbols.sep
    text = first.text.copy()
    text[:, 1:-1] = places != 0
    return Framed(values, first.lengths, text)


def choose(rows: Framed, share: float, draws: MaskDraws) -> np.ndarray:
    """Draw the positions to predict, (B, M) int64, padded with -1.

    A row of n tokens has round(share n) of them, and at least one if it has any token.
    """
    counts = rows.text.sum(1)
    chosen = np.where(counts > 0, np.maximum(1, np.floor(share * counts + 0.5)), 0).astype(int)
    keys = np.where(rows.text, draws.uniforms(rows.values.shape, CHOSEN), np.inf)
    order = np.argsort(keys, axis=1, kind="stable")[:, : max(1, int(chosen.max()))]
    last = rows.values.shape[1]
    kept = np.where(np.arange(order.shape[1]) < chosen[:, None], order, last)
    kept.sort(axis=1)
    return np.where(kept < last, kept, -1)


def masked(
    rows: Framed,
    places: np.ndarray,
    symbols: Symbols,
    words: np.ndarray | None = None,
    draws: MaskDraws | None = None,
) -> MaskedRows:
    """Hide the tokens at the given positions.

    Args:
        rows: as they are.
        places: (B, M), -1 for none.
        symbols: the model's.
        words: the tokens that a random one is drawn from; with `draws`, 80 % of the places are
            hidden, 10 % hold such a token and 10 % are left as they are. None hides all.
        draws: what random numbers follow from.
    """
    there, at = places >= 0, np.maximum(places, 0)
    real = np.take_along_axis(rows.values, at, 1)
    shown = np.full_like(real, symbols.mask)
    if words is not None:
        fate, which = (
            np.take_along_axis(draws.uniforms(rows.values.shape, what), at, 1)
            for what in (FATE, WORD)
        )
        drawn = words[(which * words.size).astype(np.int64)]
        shown = np.where(fate < HIDDEN, shown, np.where(fate < HIDDEN + REPLACED, drawn, real))
    values = rows.values.copy()
    np.put_along_axis(values, at, np.where(there, shown, np.take_along_axis(values, at, 1)), 1)
    targets = np.where(there, real, IGNORED)
    return MaskedRows(values, rows.lengths.tolist(), at, targets)


def each_hidden(row: Sequence[int], symbols: Symbols) -> MaskedRows:
    """Copy a text once per token, with a different token hidden in each copy."""
    text = np.array([row], dtype=np.int64)
    rows = framed(text, np.array([text.size]), symbols)
    every = Framed(
        *(np.repeat(part, text.size, 0) for part in (rows.values, rows.lengths, rows.text))
    )
    return masked(every, 1 + np.arange(text.size)[:, None], symbols)


def tokens_besides(vocab_size: int, special: Iterable[int | None]) -> np.ndarray:
    """List the ids of a vocabulary in order, without the given special ids."""
    return np.setdiff1d(np.arange(vocab_size), [token for token in special if token is not None])
