"""N-gram models that go on counting the text that they predict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqgen.models.arrays import ArrayModel

# The smoothings whose counts follow from their probabilities.
ADAPTABLE = ("kneser-ney", "modified-kneser-ney")
# The least frequent word after a context is tried with counts up to this.
SMALLEST = 64
# Shares below this are rounding errors.
NOTHING = 1e-9


class AdaptiveNGram:
    """N-gram model with Kneser-Ney smoothing to which a text is added, token by token.

    p(w | c) = (a(c w) - D(a(c w))) / a(c) + g(c) p(w | c'), where c' is the context c without its
    first word, a(c) the sum of a(c w) over all w, and g(c) the sum of D(a(c w)) divided by it.

    Reading w after c adds 1 to a(c w) for the longest context. If that was 0, w has been seen after
    one more context that ends with c', so that a(c' w) rises by 1 too, and so on. So the
    probabilities are those of the training text and all that was read since, counted together. The
    discounts D and the probabilities of single tokens stay what they were.

    The stored tables have no counts: those after a context are found when it is first changed.

    Args:
        model: an `NGramArrays` that was not pruned.
        discounts: those of each order, one or more: D(1), D(2) ..., the last for all larger counts.
        start: the token that a text begins after.
    """

    def __init__(self, model: ArrayModel, discounts: Sequence[Sequence[float]], start: int) -> None:
        self._model, self._steps, self._most = model, model.steps, model.order - 1
        self._discounts = [np.array([0.0, *each]) for each in discounts]
        self._single = np.exp(model.log_probs[1].astype(np.float64))
        # The counts of words after each context that has changed.
        self._changed: dict[tuple[int, ...], dict[int, int]] = {}
        # The last tokens, and the ids of the stored n-grams that end there; see `steps`.
        self._past = (start,)
        self._ids = self._steps.after([-1] * self._most, start)
        # Of each length of context, what `predict` has read: words, their shares, and what is left.
        self._read: dict[int, tuple[np.ndarray, np.ndarray, float]] = {}

    def predict(self) -> tuple[np.ndarray, int]:
        """Compute the log-probabilities (V,) of the next token, and the longest context seen."""
        probs = before = self._single
        matched, self._read = 0, {}
        for n, context in enumerate(self._ids[: len(self._past)], start=1):
            shares = counts = None
            if context >= 0:
                words, shares, left, before = self._stored(n, context, before)
                self._read[n] = words, shares, left
            counts = self._changed.get(self._past[-n:])
            if counts is not None:
                words, seen = (np.fromiter(x, np.int64) for x in (counts, counts.values()))
                lost, total = self._lost(n, seen), seen.sum()
                shares, left = (seen - lost) / total, lost.sum() / total
            if shares is not None:
                probs = left * probs
                probs[words] += shares
            if context >= 0 or self._past[-1] in self._changed.get(self._past[-n:-1], ()):
                matched = n
        with np.errstate(divide="ignore"):
            return np.log(probs).astype(self._model.dtype), matched

    def read(self, token: int) -> None:
        """Count a token after the contexts that `predict` was asked for last."""
        longest = min(len(self._past), self._most)
        for n in range(longest, 0, -1):
            context = self._past[-n:]
            counts = self._changed.get(context) or self._counts(n)
            seen = counts.get(token, 0)
            if seen and n == longest < self._most:
                break  # nothing is before the beginning of a text
            counts[token] = seen + 1
            self._changed[context] = counts
            if seen:
                break
        self._past = (*self._past, token)[-self._most :]
        self._ids = self._steps.after(self._ids, token)

    def _stored(
        self, n: int, context: int, before: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """Read a stored context of n words: words, (a - D) / a(c) of each, g(c), probabilities.

        Args:
            n: how many words it has.
            context: its id.
            before: the probabilities (V,) after the context without its first word, as stored.
        """
        begin, end = self._steps.begins[n + 1][context : context + 2]
        words = self._model.keys[n + 1][begin:end] - context * self._model.vocab_size
        probs = np.exp(self._model.log_probs[n + 1][begin:end].astype(np.float64))
        left = float(np.exp(np.float64(self._model.backoffs[n][context])))
        shares, after = probs - left * before[words], left * before
        after[words] = probs
        return words, shares, left, after

    def _counts(self, n: int) -> dict[int, int]:
        """Find the counts of words after the last n tokens, from what was stored."""
        if n not in self._read:
            return {}
        words, shares, left = self._read[n]
        counts = counts_of(shares, left, self._discounts[n])
        return dict(zip(words.tolist(), counts.tolist(), strict=True))

    def _lost(self, n: int, counts: np.ndarray) -> np.ndarray:
        """Look up what is subtracted from counts (M,) after contexts of n words."""
        discounts = self._discounts[n]
        return discounts[np.minimum(counts, discounts.size - 1)]


def counts_of(shares: np.ndarray, left: float, discounts: np.ndarray) -> np.ndarray:
    """Find the counts (M,) of words in a context from (a - D(a)) / A and sum D(a) / A.

    The total A follows from any guess of the smallest count, and from the guess that none of them
    is small. The guess counts whose whole counts, and their discounts, add up best.

    Args:
        shares: of each word, (M,).
        left: what the discounts leave for words that were not seen.
        discounts: D(0) = 0, D(1), D(2) ..., the last for all larger counts.
    """
    if not shares.size:
        return np.zeros(0, np.int64)
    last = discounts.size - 1
    smallest = np.arange(1, SMALLEST + 1)
    values = smallest - discounts[np.minimum(smallest, last)]
    # A count that is discounted to nothing tells nothing.
    totals = [values[values > 0] / each for each in np.sort(shares[shares > NOTHING])[:1]]
    if left > NOTHING:
        totals.append([shares.size * discounts[last] / left])
    totals = np.concatenate(totals)  # (G,)
    shares = shares * totals[:, None]  # (G, M) of a - D(a)
    # Of each the nearest possible one; that of a larger count may be lower than that of a smaller.
    possible = [np.full_like(shares, count) for count in range(1, last)]
    possible = np.stack([*possible, np.maximum(np.rint(shares + discounts[last]), last)])
    possible = possible.astype(np.int64)
    distances = abs(possible - discounts[np.minimum(possible, last)] - shares)
    counts = np.take_along_axis(possible, distances.argmin(0)[None], 0)[0]
    lost = discounts[np.minimum(counts, last)].sum(1)
    errors = abs(counts.sum(1) / totals - 1) + abs(lost / totals - left)
    return counts[errors.argmin()]
