"""Jelinek-Mercer smoothing: fixed weights of the orders, fitted on held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.text.corpus import Corpus, slice_items
from seqgen.training.counting import NGramEstimate, Rule, build_tables, interpolate_counts
from seqgen.training.sorted_runs import NO_LIMIT, Counts, FramedText, GramBlock, MemoryBudget, count

# Iterations of EM for the weights of orders, at most, and the change that ends them.
ROUNDS, STILL = 300, 1e-5
# Most tokens on which they are fitted.
MOST_HELD_OUT = 1 << 20


def jelinek_mercer(estimate: NGramEstimate, n: int, _: Counts) -> Rule:
    """p(w | c) = l_n count(c w) / count(c) + (1 - l_n) p(w | c without its first word).

    Jelinek and Mercer (1980), with one weight l_n an order; see `order_weights`.
    """
    if n == 1:
        estimate.weights = order_weights(
            estimate.corpus, estimate.config, estimate.possible, estimate.budget
        )

    def rule(block: GramBlock, lower: np.ndarray) -> Sequence[np.ndarray]:
        raw = block.read("raw")
        return interpolate_counts(block, raw, raw * (1 - estimate.weights[n - 1]), lower)

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
    model, estimate = NGram(config).double(), NGramEstimate(config, known, possible, budget)
    counts = count(known, config, possible, budget)
    estimate.fill(counts)
    model.fill(build_tables(counts, estimate, model.arrays.dtype))
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
