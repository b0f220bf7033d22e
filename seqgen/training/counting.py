"""Count n-grams and estimate their probabilities in one pass, without gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from seqgen.models.ngram.arrays import NOTHING, Level, NGramState
from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.settings import require
from seqgen.text.corpus import Corpus, GrowingArray, slice_items
from seqgen.training.sorted_runs import (
    NO_LIMIT,
    Counts,
    FramedText,
    GramBlock,
    MemoryBudget,
    blocks,
    count,
)

# The discounts of KenLM's --discount_fallback, for orders whose counts of counts give none.
FALLBACK = (0.5, 1.0, 1.5)
# Iterations of EM for the weights of orders, at most, and the change that ends them.
ROUNDS, STILL = 300, 1e-5
# Counts up to this are discounted by Katz. A sum that lacks no more than this lacks nothing.
KATZ, ROUNDING = 5, 1e-12
# Most tokens on which those weights are fitted, and places of a text that are looked up at once.
MOST_HELD_OUT = AT_ONCE = 1 << 20


@dataclass(frozen=True)
class NGramFit:
    """Facts about a count that the model does not store, such as discounts.

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


def fit(
    model: NGram, corpus: Corpus, impossible: Sequence[int], memory: int | None = None
) -> NGramFit:
    """Count the n-grams of a corpus and store their probabilities in a model.

    With a limit of memory, what does not fit is in temporary files; the model is the same.

    Args:
        model: its configuration says order and smoothing.
        corpus: the training part.
        impossible: ids that cannot occur in a text, such as padding and the start symbol.
        memory: the bytes that the process may take; None for any number.

    Raises:
        UsageError: the configuration names no smoothing, or the memory is too little.
        SeqgenError: the temporary files cannot be written.
    """
    began = time.perf_counter()
    config = model.config
    require(config.smoothing is not None, f"smoothing is one of {', '.join(_RULES)}")
    possible = np.ones(config.vocab_size, dtype=bool)
    possible[list(impossible)] = False
    budget = MemoryBudget.of(memory, config.vocab_size)
    counts = count(corpus, config, possible, budget)
    estimate = NGramEstimate(config, possible, budget)
    if config.smoothing == "jelinek-mercer":
        estimate.weights = order_weights(corpus, config, possible, budget)
    estimate.fill(counts)
    if config.prune_entropy:
        counts = prune_by_entropy(counts, estimate, config.prune_entropy)
    model.fill(_build_tables(counts, estimate, model.arrays.dtype))
    first, end = counts[0].initial
    return NGramFit(
        seconds=time.perf_counter() - began,
        ngrams=[int(possible.sum()) + end - first, *(grams.stored for grams in counts[1:])],
        discounts=estimate.discounts,
        fallbacks=estimate.fallbacks,
    )


@dataclass
class NGramEstimate:
    """Probabilities and backoff weights of all n-grams, before pruning.

    Attributes:
        config: says order and smoothing.
        possible: (V,) of bool, which words occur in a text.
        budget: for so many at once.
        weights: of each order, in Jelinek-Mercer smoothing.
        probs: for each order, (M,).
        backoffs: for each order but the last, (M,): 1 where there is no continuation.
        sums: of each context of the highest order so far, in stupid backoff.
        discounts: see `NGramFit`.
        fallbacks: see `NGramFit`.
    """

    config: NGramConfig
    possible: np.ndarray
    budget: MemoryBudget = NO_LIMIT
    weights: Sequence[float] = ()
    probs: list[GrowingArray] = field(default_factory=list)
    backoffs: list[GrowingArray] = field(default_factory=list)
    sums: GrowingArray | None = None
    discounts: list[list[float]] = field(default_factory=list)
    fallbacks: list[int] = field(default_factory=list)

    def fill(self, counts: Sequence[Counts]) -> None:
        """Estimate all orders, from the lowest to the highest, by the smoothing rule."""
        lower = self.budget.column(float, self.possible / self.possible.sum())
        for n in range(1, len(counts) + 1):
            rule = _RULES[self.config.smoothing](self, n, counts[n - 1])
            columns = [self.budget.column(float) for _ in range(4)]
            for block in blocks(n, counts, self.budget):
                values = rule(block, lower.take(block.read("suffixes")))
                for column, part in zip(columns, values, strict=False):
                    column.add(part)
            probs, backoffs, *scores = columns
            self.probs.append(probs)
            if n > 1:
                self.backoffs.append(backoffs)
            lower, self.sums = scores if scores[0].size else (probs, None)


# Returns of a block's n-grams, and of what the lower order has for their suffixes, (M,): their
# probabilities (M,) and the backoffs (C,) of their contexts; in stupid backoff also the scores
# that the next order reads, and their sums.
Rule = Callable[[GramBlock, np.ndarray], Sequence[np.ndarray]]


def _kneser_ney(estimate: NGramEstimate, n: int, grams: Counts) -> Rule:
    """Interpolated Kneser-Ney, with one discount an order or three (Chen and Goodman 1998).

    p(w | c) = (a(c w) - D(a(c w))) / a(c) + gamma(c) p(w | c without its first word), where a
    are the adjusted counts and gamma(c) what the discounts left; the lowest order is
    interpolated with the uniform distribution, unless `interpolate_unigrams` is off: then nothing
    is subtracted from its counts and p(w) = a(w) / sum a. What pruning takes goes to gamma as
    well, as in KenLM (Heafield et al. 2013).
    """
    config = estimate.config
    modified = config.smoothing == "modified-kneser-ney"
    if n == 1 and not config.interpolate_unigrams:
        discounts = (0.0,)
    elif config.discount is not None:
        discounts = (config.discount,)
    else:
        discounts = _discounts(grams.frequencies("adjusted", 4), modified)
    if discounts is None:
        estimate.fallbacks.append(n)
        discounts = FALLBACK if modified else FALLBACK[:1]
    estimate.discounts.append(list(map(float, discounts)))
    table = np.array([0.0, *discounts])

    def rule(block: GramBlock, lower: np.ndarray) -> Sequence[np.ndarray]:
        adjusted = block.read("adjusted")
        lost = table[np.minimum(adjusted, len(discounts))]
        return _interpolate(block, adjusted, lost, lower)

    return rule


def _interpolate(
    block: GramBlock, values: np.ndarray, lost: np.ndarray, lower: np.ndarray
) -> Sequence[np.ndarray]:
    """Interpolate probabilities with those of the lower order; see `Rule`.

    Args:
        block: the n-grams.
        values: what is divided, (M,): counts of some kind.
        lost: what is subtracted from each for the lower order, (M,).
        lower: the lower order's probabilities, (M,); of single words' the uniform distribution.
    """
    total = block.total(values)
    left = block.total(np.where(block.read("kept"), lost, values))
    seen = total > 0
    gamma = np.divide(left, total, out=np.ones(block.size), where=seen)
    discounted = (values - lost) / np.where(seen, total, 1)[block.of]
    return discounted + gamma[block.of] * lower, gamma


def _witten_bell(*_: Any) -> Rule:
    """Interpolated Witten-Bell (Chen and Goodman 1998, section 2.6).

    p(w | c) = (count(c w) + T(c) p(w | c without its first word)) / (count(c) + T(c)), with T(c)
    the number of different words seen after c: the lower order weighs as much as words that were
    new there.
    """

    def rule(block: GramBlock, lower: np.ndarray) -> Sequence[np.ndarray]:
        raw = block.read("raw")
        kinds, total = block.total(raw > 0), block.total(raw)
        share = kinds / np.maximum(kinds + total, 1)
        return _interpolate(block, raw, raw * share[block.of], lower)

    return rule


def _jelinek_mercer(estimate: NGramEstimate, n: int, *_: Any) -> Rule:
    """p(w | c) = l_n count(c w) / count(c) + (1 - l_n) p(w | c without its first word).

    Jelinek and Mercer (1980), with one weight l_n an order; see `order_weights`.
    """

    def rule(block: GramBlock, lower: np.ndarray) -> Sequence[np.ndarray]:
        raw = block.read("raw")
        return _interpolate(block, raw, raw * (1 - estimate.weights[n - 1]), lower)

    return rule


def order_weights(
    corpus: Corpus, config: NGramConfig, possible: np.ndarray, budget: MemoryBudget = NO_LIMIT
) -> list[float]:
    """Fit the weight of each order in Jelinek-Mercer smoothing by EM on held-out text.

    The last tenth of the corpus, or the last million tokens of it, is held out, and counted with
    the rest once the weights are known.
    """
    parts = _split_last_tenth(corpus)
    if parts is None:
        return [0.5] * config.order
    known, held_out = parts
    config = replace(config, smoothing="maximum-likelihood", prune_entropy=0.0)
    model, estimate = NGram(config).double(), NGramEstimate(config, possible, budget)
    counts = count(known, config, possible, budget)
    estimate.fill(counts)
    model.fill(_build_tables(counts, estimate, model.arrays.dtype))
    ((words, place),) = FramedText(held_out)
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


def _split_last_tenth(corpus: Corpus) -> tuple[Corpus, Corpus] | None:
    """Split off the last tenth of a corpus; return None if it is too short."""
    documents, size = corpus.ends.size, corpus.tokens.size
    if documents >= 10:
        number = documents - documents // 10
        number = max(number, int(corpus.ends.searchsorted(size - MOST_HELD_OUT)))
        cut = int(corpus.ends[number - 1])
    elif documents > 1 or size < 10:
        return None
    else:  # the held-out part begins where the other ends, but is read from the start of a text
        number, cut = 1, size - min(size // 10, MOST_HELD_OUT)
    known, held_out = corpus.ends[:number].clip(max=cut), corpus.ends[number:] - cut
    held_out = held_out if held_out.size else np.array([size - cut])
    tokens = slice_items(corpus.tokens, 0, cut), slice_items(corpus.tokens, cut, size)
    known, held_out = (
        replace(corpus, tokens=t, ends=e, sources=None)
        for t, e in zip(tokens, (known, held_out), strict=True)
    )
    return known, held_out


def _katz(estimate: NGramEstimate, n: int, grams: Counts) -> Rule:
    """Katz backoff (1987) with Good-Turing discounts.

    p(w | c) = d_r r / count(c) for r = count(c w) > 0, and a(c) p(w | c without its first word) for
    others, where d_r is 1 for r > 5 and a(c) makes the sum 1. What single words lose is shared by
    those never seen. If counts of counts give no discounts, 0.5 is subtracted from each count.
    Where a context has counts above 5 alone, count(c) is one more, so that something is left.
    """
    factors = _good_turing(grams.frequencies("raw", KATZ + 1))
    if factors is None:
        estimate.fallbacks.append(n)
    estimate.discounts.append([FALLBACK[0]] if factors is None else factors)

    def rule(block: GramBlock, lower: np.ndarray) -> Sequence[np.ndarray]:
        raw, of = block.read("raw"), block.of
        kept = block.read("kept") & (raw > 0)
        if factors is None:
            lost = np.minimum(raw, FALLBACK[0])
        else:
            lost = raw * (1 - np.array([1, *factors, 1])[np.minimum(raw, KATZ + 1)])
        total = np.maximum(block.total(raw), 1)
        probs = np.where(kept, raw - lost, 0) / total[of]
        if n == 1:
            unseen = estimate.possible & (raw == 0)
            left = 1 - probs.sum()
            some = unseen.any()
            return [probs + left * unseen / unseen.sum() if some else probs / probs.sum()]
        given, taken = block.total(probs), block.total(np.where(kept, lower, 0))
        # Where every word was seen, no other word can get what the discounts have left.
        whole = (1 - taken <= ROUNDING) & (given > 0)
        # Counts above 5 alone lose nothing: one more is counted, of what was not seen (SRILM).
        stuck = (1 - given <= ROUNDING) & ~whole
        given = np.where(stuck, given * total / (total + 1), given)
        probs *= np.where(stuck, total / (total + 1), 1 / np.where(whole, given, 1))[of]
        backoffs = _backoff_weights(np.where(whole, 1, given), taken)
        return np.where(kept, probs, backoffs[of] * lower), backoffs

    return rule


def _good_turing(frequencies: np.ndarray) -> list[float] | None:
    """Compute the Good-Turing discounts d_1 to d_5 (Katz 1987, eq. 15); None if undefined.

    Args:
        frequencies: how many n-grams were seen 0 to 6 times.
    """
    n = frequencies.astype(float)
    if not n[1:].all():
        return None
    r = np.arange(1, KATZ + 1)
    beyond = (KATZ + 1) * n[KATZ + 1] / n[1]
    factors = ((r + 1) * n[r + 1] / (r * n[r]) - beyond) / (1 - beyond) if beyond != 1 else r * 0
    return factors.tolist() if ((factors > 0) & (factors < 1)).all() else None


def _backoff_weights(given: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Compute backoff weights: probability left for unseen words over their lower-order mass.

    Args:
        given: the sum of the probabilities that each stores; 0 for none.
        taken: the sum of the same words' probabilities in the lower order.
    """
    free = 1 - taken
    some = free > ROUNDING
    return np.divide((1 - given).clip(0), free, out=np.ones(free.size), where=some)


def prune_by_entropy(
    counts: list[Counts], estimate: NGramEstimate, threshold: float
) -> list[Counts]:
    """Prune the n-grams that change a backoff model least (Stolcke 1998), and renormalise it.

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
    budget, probs = estimate.budget, estimate.probs
    single = probs[0][:].copy()  # p(c) of each n-gram as a context
    first, end = counts[0].initial
    if len(counts) > 1 and first < end:
        # The start of a text is not predicted, but as frequent as texts.
        after = sum(
            int(block.read("raw")[block.of == first - block.contexts.start].sum())
            for block in blocks(2, counts, budget)
        )
        single[first] = after / max(1, counts[0].raw[:].sum())
    history = [budget.column(float, single)]
    for n in range(2, len(counts)):
        history.append(budget.column(float))
        for block in blocks(n, counts, budget):
            before = history[n - 2][block.contexts][block.of]
            history[-1].add(before * probs[n - 1][block.grams])
    kept = [grams.kept for grams in counts]
    continued = budget.column(bool, np.zeros(0, bool))
    for n in range(len(counts), 1, -1):
        left, contexts = budget.column(bool), budget.column(bool)
        for block in blocks(n, counts, budget):
            there, prob, of = block.read("kept"), probs[n - 1][block.grams], block.of
            lower = probs[n - 2].take(block.read("suffixes"))
            given = block.total(np.where(there, prob, 0))
            taken = block.total(np.where(there, lower, 0))
            before = _backoff_weights(given, taken)[of]
            after = _backoff_weights(given[of] - prob, taken[of] - lower)
            with np.errstate(divide="ignore", invalid="ignore"):
                change = np.log(after) - np.log(before)
                rest = (1 - given).clip(0)[of]
                loss = prob * (np.log(lower) + np.log(after) - np.log(prob))
                loss += np.where(rest > ROUNDING, rest * change, 0)
                rise = np.expm1(-history[n - 2][block.contexts][of] * loss)
            keep = there & ~(rise < threshold)
            if n < len(counts):
                keep |= there & continued[block.grams]
            left.add(keep)
            has_more = np.zeros(block.size, bool)
            has_more[of[keep]] = True
            contexts.add(has_more)
        kept[n - 1], continued = left, contexts
    counts = [replace(grams, kept=k) for grams, k in zip(counts, kept, strict=True)]
    estimate.probs, estimate.backoffs = probs[:1], []
    for n in range(2, len(counts) + 1):
        columns = budget.column(float), budget.column(float)
        for block in blocks(n, counts, budget):
            there, lower = block.read("kept"), estimate.probs[-1].take(block.read("suffixes"))
            stored = np.where(there, probs[n - 1][block.grams], 0)
            given, taken = block.total(stored), block.total(np.where(there, lower, 0))
            backoffs = _backoff_weights(given, taken)
            columns[0].add(np.where(there, stored, backoffs[block.of] * lower))
            columns[1].add(backoffs)
        estimate.probs.append(columns[0])
        estimate.backoffs.append(columns[1])
    return counts


def _discounts(frequencies: np.ndarray, modified: bool) -> tuple[float, ...] | None:
    """Estimate Kneser-Ney discounts from counts of counts 0 to 4; None if they are too few.

    D = n1 / (n1 + 2 n2); modified, D_i = i - (i + 1) D n_{i+1} / n_i for i = 1, 2, 3 (Chen and
    Goodman 1998, equation 26), which must lie between 0 and i. As in KenLM, n1, n2 and n3 must not
    be 0, but n4 may be: then D3+ is 3.
    """
    n1, n2, n3, n4 = frequencies[1:].astype(float)
    if not modified:
        return (n1 / (n1 + 2 * n2),) if n1 and n2 else None
    if not (n1 and n2 and n3):
        return None
    y = n1 / (n1 + 2 * n2)
    discounts = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return discounts if all(0 <= d <= i for i, d in enumerate(discounts, start=1)) else None


def _maximum_likelihood(*_: Any) -> Rule:
    """p(w | c) = count(c w) / count(c), c being the longest context that was seen."""

    def rule(block: GramBlock, lower: np.ndarray) -> Sequence[np.ndarray]:
        raw = np.where(block.read("kept"), block.read("raw"), 0)
        total = block.total(raw)
        return raw / np.maximum(total, 1)[block.of], np.where(total > 0, 0.0, 1.0)

    return rule


def _add_delta(estimate: NGramEstimate, n: int, grams: Counts) -> Rule:
    """p(w | c) = (count(c w) + d) / (count(c) + d V), c being the longest context seen.

    Its `backoffs` are the probability of each word that was not seen after the context; see
    `NGram`.
    """
    delta, possible = estimate.config.delta, estimate.possible
    every = delta * possible.sum()

    def rule(block: GramBlock, lower: np.ndarray) -> Sequence[np.ndarray]:
        raw = np.where(block.read("kept"), block.read("raw"), 0)
        total = block.total(raw)
        probs = (raw + delta) / (total + every)[block.of]
        backoffs = np.where(total > 0, delta / (total + every), 1.0)
        return probs * possible if n == 1 else probs, backoffs

    return rule


def _stupid_backoff(estimate: NGramEstimate, n: int, grams: Counts) -> Rule:
    """Stupid backoff (Brants et al. 2007), divided by its sum over all words.

    S(w | c) = count(c w) / count(c) if that is not 0, else a S(w | c without its first word); a
    word that was never seen has a / V. With Z(c) the sum of S(. | c) over all words,
    p(w | c) = S(w | c) / Z(c).
    """
    factor = estimate.config.backoff
    sums = estimate.sums or estimate.budget.column(float, np.array([factor]))  # Z, without counts a

    def rule(block: GramBlock, lower: np.ndarray) -> Sequence[np.ndarray]:
        lower = lower * factor if n == 1 else lower
        raw = np.where(block.read("kept"), block.read("raw"), 0)
        total = block.total(raw)
        below = sums.take(block.shorter) if n > 1 else sums[:]
        covered = block.total(np.where(raw > 0, lower, 0))
        others = (factor if n > 1 else 1.0) * (below - covered)
        z = np.where(total > 0, 1 + others, 1.0)
        frequency = raw / np.maximum(total, 1)[block.of]
        weights = np.where(total > 0, factor * below / z, 1.0)
        scores = frequency if n > 1 else np.where(raw > 0, frequency, lower)
        return scores / z[block.of], weights, scores, z

    return rule


_RULES: dict[str, Callable[[NGramEstimate, int, Counts], Rule]] = {
    "maximum-likelihood": _maximum_likelihood,
    "add-delta": _add_delta,
    "stupid-backoff": _stupid_backoff,
    "kneser-ney": _kneser_ney,
    "modified-kneser-ney": _kneser_ney,
    "witten-bell": _witten_bell,
    "jelinek-mercer": _jelinek_mercer,
    "katz": _katz,
}


def _build_tables(counts: list[Counts], estimate: NGramEstimate, dtype: np.dtype) -> list[Level]:
    """Build the tables of log-probabilities, without the pruned n-grams."""
    budget, size = estimate.budget, counts[0].size
    levels = []
    for n in range(1, len(counts) + 1):
        level = Level(budget.column(np.int64), budget.column(dtype), budget.column(dtype))
        stored = 0  # of the contexts, before the block
        for block in blocks(n, counts, budget):
            kept = block.read("kept")
            here = counts[n - 2].kept[block.contexts] if n > 1 else np.ones(1, bool)
            ids = stored - 1 + np.cumsum(here)
            stored += np.count_nonzero(here)
            level.keys.add(ids[block.of[kept]] * size + block.read("keys")[kept] % size)
            backoffs = np.ones(kept.size)
            if n < len(counts):
                backoffs = estimate.backoffs[n - 1][block.grams]
            with np.errstate(divide="ignore"):
                level.log_probs.add(np.log(estimate.probs[n - 1][block.grams][kept]))
                level.backoffs.add(np.log(backoffs[kept]))
        levels.append(level)
    return levels


def unseen_fractions(model: NGram, corpus: Corpus, trained: Corpus) -> list[float | None]:
    """Compute, for each order, the fraction of a corpus's n-grams that the model lacks.

    Args:
        model: filled from `trained`.
        corpus: another text.
        trained: of which a word is unseen if it does not occur there.
    """
    seen = np.zeros(model.vocab_size, bool)
    for words, place in FramedText(trained, MemoryBudget(AT_ONCE, 0)):
        seen[words[place > 0]] = True
    unseen, out_of, state = np.zeros(model.order, int), np.zeros(model.order, int), None
    for words, place in FramedText(corpus, MemoryBudget(AT_ONCE, 0)):
        nodes = model.arrays.nodes(words[None], model.order, state)
        state = NGramState(np.stack([ids[:, -1] for ids in nodes[:-1]], 1)) if nodes[1:] else None
        for n, ids in enumerate(nodes, start=1):
            inside = place >= max(1, n - 1)
            missing = ~seen[words] if n == 1 else ids[0] == NOTHING
            unseen[n - 1] += np.count_nonzero(missing & inside)
            out_of[n - 1] += np.count_nonzero(inside)
    return [a / b if b else None for a, b in zip(unseen.tolist(), out_of.tolist(), strict=True)]
