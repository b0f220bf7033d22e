"""Counting n-grams and estimating their probabilities, in one pass and without gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

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
# Iterations of EM for the weights of orders, at most, and the change that ends them.
ROUNDS, STILL = 300, 1e-5
# Counts up to this are discounted by Katz. A sum that lacks no more than this lacks nothing.
KATZ, NOBODY = 5, 1e-12


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
        discounts: for each order, D1, D2, D3+ (or the one D), of Katz d_1 to d_5; else empty.
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
    smooth = _ESTIMATES[config.smoothing]
    if config.smoothing == "jelinek-mercer":
        smooth = partial(smooth, weights=order_weights(corpus, config, possible))
    estimate = smooth(counts, possible, config)
    if config.prune_entropy:
        counts, estimate = prune_by_entropy(counts, estimate, config.prune_entropy)
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
    modified = config.smoothing == "modified-kneser-ney"

    def discount(n: int, adjusted: np.ndarray, contexts: Contexts) -> np.ndarray:
        if n == 1 and not config.interpolate_unigrams:
            discounts = (0.0,)
        elif config.discount is not None:
            discounts = (config.discount,)
        else:
            discounts = _discounts(adjusted, modified)
        if discounts is None:
            estimate.fallbacks.append(n)
            discounts = FALLBACK if modified else FALLBACK[:1]
        estimate.discounts.append(list(map(float, discounts)))
        return np.array([0.0, *discounts])[np.minimum(adjusted, len(discounts))]

    return _interpolated(estimate, counts, [c.adjusted for c in counts], possible, discount)


def _interpolated(
    estimate: NGramEstimate,
    counts: list[Counts],
    values: Sequence[np.ndarray],
    possible: np.ndarray,
    discount: Callable[[int, np.ndarray, Contexts], np.ndarray],
) -> NGramEstimate:
    """Fill in probabilities that are interpolated with those of the lower order.

    Args:
        estimate: which gets them.
        counts: the n-grams.
        values: for each order what is divided, (M,): counts of some kind.
        possible: (V,), which words there can be; the lowest order is interpolated with the uniform
            distribution over them.
        discount: returns what is subtracted from the values of an order, (M,), for the lower order.
    """
    lower = possible / possible.sum()
    for n, (grams, value) in enumerate(zip(counts, values, strict=True), start=1):
        contexts = Contexts(n, counts, possible.size)
        lost = discount(n, value, contexts)
        total = contexts.total(value)
        left = contexts.total(np.where(grams.kept, lost, value))
        seen = total > 0
        gamma = np.divide(left, total, out=np.ones(contexts.count), where=seen)
        discounted = (value - lost) / np.where(seen, total, 1)[contexts.of]
        lower = discounted + gamma[contexts.of] * lower[grams.suffixes]
        estimate.probs.append(lower)
        if n > 1:
            estimate.backoffs.append(gamma)
    return estimate


def _witten_bell(counts: list[Counts], possible: np.ndarray, config: NGramConfig) -> NGramEstimate:
    """Interpolated Witten-Bell (Chen and Goodman 1998, section 2.6).

    p(w | c) = (count(c w) + T(c) p(w | c without its first word)) / (count(c) + T(c)), with T(c)
    the number of different words seen after c: the lower order weighs as much as words that were
    new there.
    """

    def discount(n: int, raw: np.ndarray, contexts: Contexts) -> np.ndarray:
        kinds, total = contexts.total(raw > 0), contexts.total(raw)
        share = kinds / np.maximum(kinds + total, 1)
        return raw * share[contexts.of]

    raw = [grams.raw for grams in counts]
    return _interpolated(NGramEstimate(), counts, raw, possible, discount)


def _jelinek_mercer(
    counts: list[Counts], possible: np.ndarray, config: NGramConfig, weights: Sequence[float]
) -> NGramEstimate:
    """p(w | c) = l_n count(c w) / count(c) + (1 - l_n) p(w | c without its first word).

    Jelinek and Mercer (1980), with one weight l_n an order; see `order_weights`.
    """

    def discount(n: int, raw: np.ndarray, contexts: Contexts) -> np.ndarray:
        return raw * (1 - weights[n - 1])

    raw = [grams.raw for grams in counts]
    return _interpolated(NGramEstimate(), counts, raw, possible, discount)


def order_weights(corpus: Corpus, config: NGramConfig, possible: np.ndarray) -> list[float]:
    """Return the weight of each order in Jelinek-Mercer smoothing, by EM on held-out text.

    The last tenth of the corpus is held out, and counted with the rest once the weights are known.
    """
    parts = _last_tenth(corpus)
    if parts is None:
        return [0.5] * config.order
    known, held_out = parts
    model = NGram(replace(config, smoothing="maximum-likelihood", prune_entropy=0.0)).double()
    counts = count(known, config, possible)
    model.fill(_levels(counts, _maximum_likelihood(counts, possible, config)))
    words, place = _with_starts(held_out)
    at = np.flatnonzero(place > 0)
    nodes = [ids[0] for ids in model.arrays.nodes(words[None], config.order)]
    probs = np.zeros((config.order + 1, at.size))  # of each order, the uniform distribution first
    seen = np.zeros(probs.shape, bool)
    seen[:2], probs[0] = True, 1 / possible.sum()
    for n, ids in enumerate(nodes, start=1):
        inside = (place[at] >= n - 1) & (ids[at] >= 0)
        probs[n][inside] = np.exp(model.arrays.log_probs[n][ids[at[inside]]])
        if n > 1:  # what has continuations has a backoff of probability 0 under maximum likelihood
            context = nodes[n - 2][at - 1]
            stored = (place[at] >= n - 1) & (context >= 0)
            seen[n][stored] = np.isneginf(model.arrays.backoffs[n - 1][context[stored]])
    weights = np.full(config.order + 1, 0.5)
    weights[0] = 1
    for _ in range(ROUNDS):
        rest, shares = np.ones(at.size), np.zeros(probs.shape)
        for n in reversed(range(config.order + 1)):
            own = weights[n] * seen[n]
            shares[n] = rest * own * probs[n]
            rest = rest * (1 - own)
        shares /= shares.sum(0)
        below = shares.cumsum(0)
        before = weights.copy()
        weights[1:] = [
            shares[n][seen[n]].sum() / max(below[n][seen[n]].sum(), 1e-9)
            for n in range(1, config.order + 1)
        ]
        # An order that never failed on the held-out text, or never helped, may do so elsewhere.
        weights[1:] = weights[1:].clip(1e-4, 1 - 1e-4)
        if np.abs(weights - before).max() < STILL:
            break
    return weights[1:].tolist()


def _last_tenth(corpus: Corpus) -> tuple[Corpus, Corpus] | None:
    """Return a corpus without its last tenth, and that; None if there is too little of it."""
    documents = corpus.ends.size
    if documents >= 10:
        cut = documents - documents // 10
        return corpus.take(np.arange(cut)), corpus.take(np.arange(cut, documents))
    if documents > 1 or corpus.tokens.size < 10:
        return None
    cut = corpus.tokens.size - corpus.tokens.size // 10
    parts = np.asarray(corpus.tokens[:cut]), np.asarray(corpus.tokens[cut:])
    known, held_out = (replace(corpus, tokens=p, ends=np.array([p.size])) for p in parts)
    # The held-out part begins where the other ends, but is read from the start of a text.
    return known, held_out


def _katz(counts: list[Counts], possible: np.ndarray, config: NGramConfig) -> NGramEstimate:
    """Katz backoff (1987) with Good-Turing discounts.

    p(w | c) = d_r r / count(c) for r = count(c w) > 0, and a(c) p(w | c without its first word) for
    others, where d_r is 1 for r > 5 and a(c) makes the sum 1. What single words lose is shared by
    those never seen. If counts of counts give no discounts, 0.5 is subtracted from each count.
    Where a context has counts above 5 alone, count(c) is one more, so that something is left.
    """
    estimate = NGramEstimate()
    for n, grams in enumerate(counts, start=1):
        contexts = Contexts(n, counts, config.vocab_size)
        kept = grams.kept & (grams.raw > 0)
        factors = _good_turing(grams.raw)
        if factors is None:
            estimate.fallbacks.append(n)
            lost = np.minimum(grams.raw, FALLBACK[0])
        else:
            lost = grams.raw * (1 - np.array([1, *factors, 1])[np.minimum(grams.raw, KATZ + 1)])
        estimate.discounts.append([FALLBACK[0]] if factors is None else factors)
        total = np.maximum(contexts.total(grams.raw), 1)
        probs = np.where(kept, grams.raw - lost, 0) / total[contexts.of]
        if n == 1:
            unseen = possible & (grams.raw == 0)
            left = 1 - probs.sum()
            probs = probs + left * unseen / unseen.sum() if unseen.any() else probs / probs.sum()
            estimate.probs.append(probs)
            continue
        lower = estimate.probs[-1][grams.suffixes]
        given, taken = contexts.total(probs), contexts.total(np.where(kept, lower, 0))
        # Where every word was seen there is nobody to give what the discounts have left.
        whole = (1 - taken <= NOBODY) & (given > 0)
        # Counts above 5 alone lose nothing: one more is counted, of what was not seen (SRILM).
        stuck = (1 - given <= NOBODY) & ~whole
        given = np.where(stuck, given * total / (total + 1), given)
        probs *= np.where(stuck, total / (total + 1), 1 / np.where(whole, given, 1))[contexts.of]
        estimate.backoffs.append(_backoffs(np.where(whole, 1, given), taken))
        estimate.probs.append(np.where(kept, probs, estimate.backoffs[-1][contexts.of] * lower))
    return estimate


def _good_turing(raw: np.ndarray) -> list[float] | None:
    """Return d_1 to d_5 of Katz (1987), equation 15; None if the counts do not allow them."""
    n = np.bincount(raw[(raw > 0) & (raw <= KATZ + 1)], minlength=KATZ + 2).astype(float)
    if not n[1:].all():
        return None
    r = np.arange(1, KATZ + 1)
    beyond = (KATZ + 1) * n[KATZ + 1] / n[1]
    factors = ((r + 1) * n[r + 1] / (r * n[r]) - beyond) / (1 - beyond) if beyond != 1 else r * 0
    return factors.tolist() if ((factors > 0) & (factors < 1)).all() else None


def _backoffs(given: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Return by what contexts scale the lower order for the words that they do not store.

    Args:
        given: the sum of the probabilities that each stores; 0 for none.
        taken: the sum of the same words' probabilities in the lower order.
    """
    free = 1 - taken
    some = free > NOBODY
    return np.divide((1 - given).clip(0), free, out=np.ones(free.size), where=some)


def prune_by_entropy(
    counts: list[Counts], estimate: NGramEstimate, threshold: float
) -> tuple[list[Counts], NGramEstimate]:
    """Drop the n-grams that a backoff model hardly needs (Stolcke 1998), and scale it again.

    Without (c, w) the model's perplexity rises by the share e^D - 1, with

    D = -p(c) { p(w | c) [log p(w | c') + log a'(c) - log p(w | c)]
                + [log a'(c) - log a(c)] sum p(v | c) over the v not stored after c }

    where c' is c without its first word and a' the backoff without (c, w); both sums change a
    little with every n-gram that goes, which is ignored. Highest orders go first; an n-gram that a
    longer one continues stays.

    Args:
        counts: the n-grams; those already dropped stay so.
        estimate: of probabilities that are stored or backed off to.
        threshold: the least e^D - 1 that keeps an n-gram.
    """
    size = counts[0].keys.size
    raw = counts[0].raw
    history = [estimate.probs[0].copy()]  # p(c) of each n-gram as a context
    starts = np.flatnonzero(counts[0].initial)
    for n, grams in enumerate(counts[1:], start=2):
        if n == 2:  # the start of a text is not predicted, but as frequent as texts
            after = np.bincount(grams.keys // size, weights=grams.raw, minlength=size)
            history[0][starts] = after[starts] / max(1, raw.sum())
        history.append(history[-1][grams.keys // size] * estimate.probs[n - 1])
    kept = [grams.kept.copy() for grams in counts]
    for n in range(len(counts), 1, -1):
        grams, contexts = counts[n - 1], Contexts(n, counts, size)
        there, prob = kept[n - 1], estimate.probs[n - 1]
        lower = estimate.probs[n - 2][grams.suffixes]
        given = contexts.total(np.where(there, prob, 0))
        taken = contexts.total(np.where(there, lower, 0))
        before = _backoffs(given, taken)[contexts.of]
        after = _backoffs(given[contexts.of] - prob, taken[contexts.of] - lower)
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.log(after) - np.log(before)
            rest = (1 - given).clip(0)[contexts.of]
            loss = prob * (np.log(lower) + np.log(after) - np.log(prob))
            loss += np.where(rest > NOBODY, rest * change, 0)
            rise = np.expm1(-history[n - 2][contexts.of] * loss)
        continued = np.zeros(there.size, bool)
        if n < len(counts):
            continued[counts[n].keys[kept[n]] // size] = True
        kept[n - 1] = there & (continued | ~(rise < threshold))
    counts = [replace(grams, kept=k) for grams, k in zip(counts, kept, strict=True)]
    probs, backoffs = [estimate.probs[0]], []
    for n, grams in enumerate(counts[1:], start=2):
        contexts, lower = Contexts(n, counts, size), probs[-1][grams.suffixes]
        stored = np.where(grams.kept, estimate.probs[n - 1], 0)
        given, taken = contexts.total(stored), contexts.total(np.where(grams.kept, lower, 0))
        backoffs.append(_backoffs(given, taken))
        probs.append(np.where(grams.kept, stored, backoffs[-1][contexts.of] * lower))
    return counts, replace(estimate, probs=probs, backoffs=backoffs)


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
    "witten-bell": _witten_bell,
    "jelinek-mercer": _jelinek_mercer,
    "katz": _katz,
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
