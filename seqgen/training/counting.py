"""Counting n-grams and estimating their probabilities, in one pass and without gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seqgen.configs import require
from seqgen.data.corpus import Corpus
from seqgen.models.ngram.array_model import NOTHING, Level
from seqgen.models.ngram.config import NGramConfig
from seqgen.models.ngram.model import NGram

# The discounts of KenLM's --discount_fallback, for orders whose counts of counts give none.
FALLBACK = (0.5, 1.0, 1.5)
# N-grams are counted in a table of all possible ones if it is at most this many times as long as
# the text, and by sorting otherwise.
TABLE_PER_KEY = 4


@dataclass(frozen=True)
class Counts:
    """The distinct n-grams of one order n.

    Attributes:
        keys: (M,) int64, ascending: (id of the first n - 1 words) V + (the last word); of order
            1, all V words.
        raw: (M,) int64, how often each was seen, its last word being scored.
        suffixes: (M,) int64, the id of the last n - 1 words; for order 1 the word itself.
        adjusted: (M,) int64, how many different words were seen before it; `raw` for the
            highest order, and for those that begin a document by a symbol that stands nowhere
            else (so that nothing was ever before them).
        initial: (M,) bool, which ones these last are.
        kept: (M,) bool, false for those to be pruned.
    """

    keys: np.ndarray
    raw: np.ndarray
    suffixes: np.ndarray
    adjusted: np.ndarray
    initial: np.ndarray
    kept: np.ndarray


@dataclass(frozen=True)
class NGramFit:
    """Facts from counting that are not part of the model.

    Attributes:
        seconds: for counting and estimating.
        ngrams: how many n-grams of each order are stored.
        discounts: for each order, D1, D2, D3+ (or the one D); empty without Kneser-Ney.
        fallbacks: the orders whose counts gave no discounts.
    """

    seconds: float
    ngrams: list[int]
    discounts: list[list[float]]
    fallbacks: list[int]


def fit(model: NGram, corpus: Corpus, impossible: Sequence[int]) -> NGramFit:
    """Fill a model with the n-grams of a corpus.

    Args:
        model: its configuration says order and smoothing.
        corpus: the training part.
        impossible: ids that cannot occur in a text, such as padding and the start symbol.

    Raises:
        UsageError: the configuration names no smoothing.
    """
    began = time.perf_counter()
    config = model.config
    require(config.smoothing is not None, f"smoothing is one of {', '.join(_ESTIMATES)}")
    possible = np.ones(config.vocab_size, dtype=bool)
    possible[list(impossible)] = False
    counts = count(corpus, config, possible)
    estimate = _ESTIMATES[config.smoothing](counts, possible, config)
    model.fill(_levels(counts, estimate))
    return NGramFit(
        seconds=time.perf_counter() - began,
        ngrams=[int(np.count_nonzero(possible | counts[0].initial))]
        + [int(np.count_nonzero(c.kept)) for c in counts[1:]],
        discounts=estimate.discounts,
        fallbacks=estimate.fallbacks,
    )


def count(corpus: Corpus, config: NGramConfig, possible: np.ndarray) -> list[Counts]:
    """Count the n-grams of every order, 1 to N; none spans two documents."""
    size = config.vocab_size
    words, place = _with_starts(corpus)
    every = np.arange(size)
    raw = np.bincount(words[place > 0], minlength=size)
    initial = (every == corpus.start) & ~possible
    counts_by_order = [Counts(every, raw, every, raw, initial, np.ones(size, dtype=bool))]
    ids = words  # of the n-gram that ends at each word
    for n, limit in enumerate(config.thresholds[1:], start=2):
        at = np.flatnonzero(place >= n - 1)
        possible_keys = counts_by_order[-1].keys.size * size
        keys, which, raw = _distinct(ids[at - 1] * size + words[at], possible_keys)
        suffixes = np.empty(keys.size, dtype=np.int64)
        suffixes[which] = ids[at]
        # The first n-gram of a text includes the start symbol, as if it were one more word; but the
        # start symbol itself is not predicted.
        firsts = np.unique(ids[place == n - 2]) if n > 2 else every[:0]
        counts_by_order[-1] = _adjusted(counts_by_order[-1], suffixes, firsts)
        initial = counts_by_order[-1].initial[keys // size]
        counts_by_order.append(Counts(keys, raw, suffixes, raw, initial, raw > limit))
        ids = np.full(words.size, NOTHING)
        ids[at] = which
    return counts_by_order


def _with_starts(corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Return the corpus with the start symbol before each document, and places from it, (L,)."""
    words = np.insert(corpus.tokens.astype(np.int64), corpus.starts, corpus.start)
    begins = corpus.starts + np.arange(corpus.ends.size)
    lengths = np.diff(np.append(begins, words.size))
    return words, np.arange(words.size) - np.repeat(begins, lengths)


def _distinct(keys: np.ndarray, possible: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sorted distinct keys, the index of each key among them, and their counts.

    Args:
        keys: (M,) int64, from 0 to `possible` - 1.
        possible: how many keys there could be.
    """
    if possible <= TABLE_PER_KEY * keys.size:
        # With few possible keys, as over characters, a table is faster than sorting.
        table = np.bincount(keys, minlength=possible)
        present = np.flatnonzero(table)
        counts = table[present]
        table[present] = np.arange(present.size)
        return present, table[keys], counts
    order = np.argsort(keys)
    ordered = keys[order]
    new = np.ones(keys.size, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    first = np.flatnonzero(new)
    which = np.empty(keys.size, dtype=np.int64)
    which[order] = np.cumsum(new) - 1
    return ordered[first], which, np.diff(np.append(first, keys.size))


def _adjusted(counts: Counts, suffixes: np.ndarray, firsts: np.ndarray) -> Counts:
    """Return counts whose `adjusted` are numbers of different words before each n-gram.

    Args:
        counts: of n-grams.
        suffixes: the ids of the n-grams that end the distinct (n + 1)-grams.
        firsts: the ids of the n-grams that begin a document.
    """
    before = np.bincount(suffixes, minlength=counts.keys.size)
    before[firsts] += 1
    return replace(counts, adjusted=np.where(counts.initial, counts.raw, before))


@dataclass
class NGramEstimate:
    """Probabilities and backoffs of all n-grams, those to be pruned included.

    Attributes:
        probs: for each order, (M,).
        backoffs: for each order but the last, (M,): 1 where there is no continuation.
        discounts: see `NGramFit`.
        fallbacks: see `NGramFit`.
    """

    probs: list[np.ndarray] = field(default_factory=list)
    backoffs: list[np.ndarray] = field(default_factory=list)
    discounts: list[list[float]] = field(default_factory=list)
    fallbacks: list[int] = field(default_factory=list)


class Contexts:
    """The first n - 1 words of n-grams: sums over each one's continuations."""

    def __init__(self, n: int, counts: Sequence[Counts], size: int) -> None:
        self.of = counts[n - 1].keys // size  # (M,): one context, the empty one, for n = 1
        self.count = counts[n - 2].keys.size if n > 1 else 1

    def total(self, values: np.ndarray) -> np.ndarray:
        """Return each context's sum of the values (M,) of its continuations."""
        return np.bincount(self.of, weights=values, minlength=self.count)


def _kneser_ney(counts: list[Counts], possible: np.ndarray, config: NGramConfig) -> NGramEstimate:
    """Interpolated Kneser-Ney, with one discount an order or three (Chen and Goodman 1998).

    p(w | c) = (a(c w) - D(a(c w))) / a(c) + gamma(c) p(w | c without its first word), where a
    are the adjusted counts and gamma(c) what the discounts left; the lowest order is
    interpolated with the uniform distribution, unless `interpolate_unigrams` is off: then nothing
    is subtracted from its counts and p(w) = a(w) / sum a. What pruning takes goes to gamma as
    well, as in KenLM (Heafield et al. 2013).
    """
    estimate = NGramEstimate()
    lower = possible / possible.sum()
    for n, grams in enumerate(counts, start=1):
        contexts = Contexts(n, counts, config.vocab_size)
        modified = config.smoothing == "modified-kneser-ney"
        if n == 1 and not config.interpolate_unigrams:
            discounts = (0.0,)
        elif config.discount is not None:
            discounts = (config.discount,)
        else:
            discounts = _discounts(grams.adjusted, modified)
        if discounts is None:
            estimate.fallbacks.append(n)
            discounts = FALLBACK if modified else FALLBACK[:1]
        estimate.discounts.append(list(map(float, discounts)))
        amounts = np.array([0.0, *discounts])
        discount = amounts[np.minimum(grams.adjusted, len(discounts))]  # (M,)
        total = contexts.total(grams.adjusted)
        left = contexts.total(np.where(grams.kept, discount, grams.adjusted))
        seen = total > 0
        gamma = np.divide(left, total, out=np.ones(contexts.count), where=seen)
        discounted = (grams.adjusted - discount) / np.where(seen, total, 1)[contexts.of]
        lower = discounted + gamma[contexts.of] * lower[grams.suffixes]
        estimate.probs.append(lower)
        if n > 1:
            estimate.backoffs.append(gamma)
    return estimate


def _discounts(adjusted: np.ndarray, modified: bool) -> tuple[float, ...] | None:
    """Estimate the discounts from counts of counts; None if they do not allow it.

    D = n1 / (n1 + 2 n2); modified, D_i = i - (i + 1) D n_{i+1} / n_i for i = 1, 2, 3 (Chen and
    Goodman 1998, equation 26), which must lie between 0 and i. As in KenLM, n1, n2 and n3 must not
    be 0, but n4 may be: then D3+ is 3.
    """
    n1, n2, n3, n4 = np.bincount(adjusted[adjusted < 5], minlength=5)[1:].astype(float)
    if not modified:
        return (n1 / (n1 + 2 * n2),) if n1 and n2 else None
    if not (n1 and n2 and n3):
        return None
    y = n1 / (n1 + 2 * n2)
    discounts = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return discounts if all(0 <= d <= i for i, d in enumerate(discounts, start=1)) else None


def _maximum_likelihood(
    counts: list[Counts], possible: np.ndarray, config: NGramConfig
) -> NGramEstimate:
    """p(w | c) = count(c w) / count(c), c being the longest context that was seen."""
    estimate = NGramEstimate()
    for n, grams in enumerate(counts, start=1):
        contexts = Contexts(n, counts, config.vocab_size)
        raw = np.where(grams.kept, grams.raw, 0)
        total = contexts.total(raw)
        estimate.probs.append(raw / np.maximum(total, 1)[contexts.of])
        if n > 1:
            estimate.backoffs.append(np.where(total > 0, 0.0, 1.0))
    return estimate


def _add_delta(counts: list[Counts], possible: np.ndarray, config: NGramConfig) -> NGramEstimate:
    """p(w | c) = (count(c w) + d) / (count(c) + d V), c being the longest context seen.

    Its `backoffs` are the probability of each word that was not seen after the context; see
    `NGram`.
    """
    estimate = NGramEstimate()
    every = config.delta * possible.sum()
    for n, grams in enumerate(counts, start=1):
        contexts = Contexts(n, counts, config.vocab_size)
        raw = np.where(grams.kept, grams.raw, 0)
        total = contexts.total(raw)
        estimate.probs.append((raw + config.delta) / (total + every)[contexts.of])
        if n > 1:
            estimate.backoffs.append(np.where(total > 0, config.delta / (total + every), 1.0))
    estimate.probs[0] *= possible
    return estimate


def _stupid_backoff(
    counts: list[Counts], possible: np.ndarray, config: NGramConfig
) -> NGramEstimate:
    """Stupid backoff (Brants et al. 2007), divided by its sum over all words.

    S(w | c) = count(c w) / count(c) if that is not 0, else a S(w | c without its first word); a
    word that was never seen has a / V. With Z(c) the sum of S(. | c) over all words,
    p(w | c) = S(w | c) / Z(c).
    """
    estimate, factor = NGramEstimate(), config.backoff
    lower = factor * possible / possible.sum()  # S without counts
    below = np.array([factor])  # its sum; for n > 1 Z of each context of the order below
    for n, grams in enumerate(counts, start=1):
        contexts = Contexts(n, counts, config.vocab_size)
        raw = np.where(grams.kept, grams.raw, 0)
        total = contexts.total(raw)
        covered = contexts.total(np.where(raw > 0, lower[grams.suffixes], 0))
        shorter = counts[n - 2].suffixes if n > 2 else np.zeros(contexts.count, dtype=np.int64)
        others = (factor if n > 1 else 1.0) * (below[shorter] - covered)
        z = np.where(total > 0, 1 + others, 1.0)
        frequency = raw / np.maximum(total, 1)[contexts.of]
        if n > 1:
            weight = np.where(total > 0, factor * below[shorter] / z, 1.0)
            estimate.backoffs.append(weight)
            lower = frequency
        else:
            lower = np.where(raw > 0, frequency, lower)
        estimate.probs.append(lower / z[contexts.of])
        below = z
    return estimate


_ESTIMATES: dict[str, Callable[[list[Counts], np.ndarray, NGramConfig], NGramEstimate]] = {
    "maximum-likelihood": _maximum_likelihood,
    "add-delta": _add_delta,
    "stupid-backoff": _stupid_backoff,
    "kneser-ney": _kneser_ney,
    "modified-kneser-ney": _kneser_ney,
}


def _levels(counts: list[Counts], estimate: NGramEstimate) -> list[Level]:
    """Return the tables without the n-grams to be pruned, in logarithms."""
    size = counts[0].keys.size
    levels = []
    new_ids = np.arange(1)
    for n, grams in enumerate(counts, start=1):
        kept = grams.kept
        keys = new_ids[grams.keys[kept] // size] * size + grams.keys[kept] % size
        top = n == len(counts)
        backoffs = np.ones(kept.size) if top else estimate.backoffs[n - 1]
        with np.errstate(divide="ignore"):
            levels.append(Level(keys, np.log(estimate.probs[n - 1][kept]), np.log(backoffs[kept])))
        new_ids = np.cumsum(kept) - 1
    return levels


def unseen_fractions(model: NGram, corpus: Corpus, trained: Corpus) -> list[float | None]:
    """Return, for each order, which share of a corpus's n-grams the model has not stored.

    Args:
        model: filled from `trained`.
        corpus: another text.
        trained: of which a word is unseen if it does not occur there.
    """
    words, place = _with_starts(corpus)
    seen = np.bincount(trained.tokens, minlength=model.vocab_size) > 0
    fractions = [_fraction(~seen[words[place > 0]])]
    nodes = model.arrays.nodes(words[None], model.order)
    for n, ids in enumerate(nodes[1:], start=2):
        fractions.append(_fraction(ids[0][place >= n - 1] == NOTHING))
    return fractions


def _fraction(which: np.ndarray) -> float | None:
    return float(which.mean()) if which.size else None
