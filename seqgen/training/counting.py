"""Count n-grams and estimate their probabilities in one pass, without gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np

from seqgen import hooks
from seqgen.models.ngram.arrays import NOTHING, Level, NGramState
from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.settings import require
from seqgen.settings.model import Smoothing
from seqgen.text.corpus import Corpus, GrowingArray
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
# A sum that lacks no more than this lacks nothing.
ROUNDING = 1e-12
# Places of a text that are looked up at once.
AT_ONCE = 1 << 20


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
    require(config.smoothing is not None, f"smoothing is one of {', '.join(get_args(Smoothing))}")
    smoothing_rule(config.smoothing)  # before the work
    possible = np.ones(config.vocab_size, dtype=bool)
    possible[list(impossible)] = False
    budget = MemoryBudget.of(memory, config.vocab_size)
    counts = count(corpus, config, possible, budget)
    estimate = NGramEstimate(config, corpus, possible, budget)
    estimate.fill(counts)
    if config.prune_entropy:
        counts = prune_by_entropy(counts, estimate, config.prune_entropy)
    model.fill(build_tables(counts, estimate, model.arrays.dtype))
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
        corpus: the training part, which was counted.
        possible: (V,) of bool, which words occur in a text.
        budget: for so many at once.
        weights: of each order, where the smoothing has some.
        probs: for each order, (M,).
        backoffs: for each order but the last, (M,): 1 where there is no continuation.
        sums: of each context of the highest order so far, in stupid backoff.
        discounts: see `NGramFit`.
        fallbacks: see `NGramFit`.
    """

    config: NGramConfig
    corpus: Corpus
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
        smooth = smoothing_rule(self.config.smoothing)
        for n in range(1, len(counts) + 1):
            rule = smooth(self, n, counts[n - 1])
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
        return interpolate_counts(block, adjusted, lost, lower)

    return rule


def interpolate_counts(
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


def backoff_weights(given: np.ndarray, taken: np.ndarray) -> np.ndarray:
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
            before = backoff_weights(given, taken)[of]
            after = backoff_weights(given[of] - prob, taken[of] - lower)
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
            backoffs = backoff_weights(given, taken)
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


# Makes the rule of order n from the estimate so far and the n-grams of that order.
Smooth = Callable[[NGramEstimate, int, Counts], Rule]
_RULES: dict[str, Smooth] = {
    "maximum-likelihood": _maximum_likelihood,
    "add-delta": _add_delta,
    "kneser-ney": _kneser_ney,
    "modified-kneser-ney": _kneser_ney,
}


def smoothing_rule(name: str) -> Smooth:
    """Look up a smoothing method of the core or of a plugin; see `hooks.load_method`."""
    return _RULES[name] if name in _RULES else hooks.load_method("smoothing", name)


def build_tables(counts: list[Counts], estimate: NGramEstimate, dtype: np.dtype) -> list[Level]:
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
