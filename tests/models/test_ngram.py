"""N-gram models against slow definitions in dictionaries, KenLM's figures, and their contract."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import os
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from examples import examples
from helpers_cli import known_smoothings, needs
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT

from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.scoring.loop import add_up, score_corpus
from seqgen.store import StoredModel
from seqgen.text.corpus import Corpus, encode_corpus
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.text.tokenizers.word import WhitespaceTokenizer
from seqgen.training.counting import count, fit, unseen_fractions

SMOOTHINGS = known_smoothings()
# Ids as the tokenizers': pad, bos, eos, unk, newline, then words.
PAD, BOS, EOS, UNK, NEWLINE = range(5)
V = 9
quick = settings(deadline=None, max_examples=examples(15), derandomize=True)
words = st.integers(UNK, V - 1).filter(lambda w: w != NEWLINE)
lines = st.lists(st.lists(words, max_size=7), min_size=1, max_size=8)
streams = st.lists(st.integers(UNK, V - 1), min_size=1, max_size=40)


def line_corpus(documents):
    tokens = np.array([w for d in documents for w in (*d, EOS)], dtype=np.uint8)
    return Corpus(tokens, np.cumsum([len(d) + 1 for d in documents]), BOS), [PAD, BOS, NEWLINE]


def stream_corpus(text):
    return Corpus(np.array(text, dtype=np.uint8), np.array([len(text)]), NEWLINE), [PAD, BOS, EOS]


def fitted(corpus, impossible, dtype=torch.float64, **more):
    model = NGram(NGramConfig(vocab_size=V, **more)).to(dtype).eval()
    return model, fit(model, corpus, impossible)


def texts_of(corpus):
    """Return each document with its start symbol, as tuples."""
    bounds = zip(corpus.starts, corpus.ends, strict=True)
    return [(corpus.start, *corpus.tokens[a:b].tolist()) for a, b in bounds]


def kenlms_discounts(counts):
    """Return D1, D2, D3+ as `lmplz --discount_fallback` has them, in exact fractions.

    Chen and Goodman (1998), equation 26: Y = n1 / (n1 + 2 n2), D_j = j - (j + 1) Y n_{j+1} / n_j.
    KenLM refuses an order where one of the n_j that it divides by is 0 (j = 1, 2, 3; nothing is
    divided by n4), or where a D_j is below 0 or above j; its --discount_fallback then takes
    0.5, 1, 1.5.
    """
    try:
        y = Fraction(counts.count(1), counts.count(1) + 2 * counts.count(2))
        found = [
            j - (j + 1) * y * Fraction(counts.count(j + 1), counts.count(j)) for j in (1, 2, 3)
        ]
    except ZeroDivisionError:
        found = [Fraction(-1)]
    fits = all(0 <= d <= j for j, d in enumerate(found, start=1))
    return found if fits else [Fraction(1, 2), Fraction(1), Fraction(3, 2)]


class Oracle:
    """Every smoothing by its definition: slow, with dictionaries, one n-gram at a time."""

    def __init__(self, corpus, impossible, order, smoothing, delta=0.1, backoff=0.4) -> None:
        self.order, self.smoothing = order, smoothing
        self.delta, self.factor = delta, backoff
        self.vocabulary = [w for w in range(V) if w not in impossible]
        self.raw: Counter = Counter()
        before = defaultdict(set)
        for text in texts_of(corpus):
            for n in range(1, order + 1):
                for at in range(len(text) - n + 1):
                    gram = text[at : at + n]
                    if n == 1 and at == 0:
                        continue  # the start symbol is not predicted
                    self.raw[gram] += 1
                    before[gram].add(text[at - 1] if at else "start")
        self.adjusted = {
            gram: count if len(gram) == order or gram[0] == BOS else len(before[gram])
            for gram, count in self.raw.items()
        }
        self.following = defaultdict(list)
        for gram in self.raw:
            self.following[gram[:-1]].append(gram[-1])
        self.weights = None
        if smoothing == "jelinek-mercer":
            from seqgen.plugins.smoothings.jelinek_mercer import order_weights

            config = NGramConfig(vocab_size=V, order=order, smoothing=smoothing)
            possible = np.isin(np.arange(V), impossible, invert=True)
            self.weights = order_weights(corpus, config, possible)
        self.discounts = {n: self._discounts(n) for n in range(1, order + 1)}

    def _discounts(self, n):
        counts = [c for gram, c in self.adjusted.items() if len(gram) == n]
        if self.smoothing == "kneser-ney":
            n1, n2 = counts.count(1), counts.count(2)
            return [n1 / (n1 + 2 * n2)] * 3 if n1 and n2 else [0.5] * 3
        return [float(d) for d in kenlms_discounts(counts)]

    def distribution(self, context):
        context = tuple(context)[-(self.order - 1) :] if self.order > 1 else ()
        if self.smoothing == "stupid-backoff":
            scores = {w: self.stupid(context, w) for w in self.vocabulary}
            return {w: s / sum(scores.values()) for w, s in scores.items()}
        of = {"maximum-likelihood": self.likelihood, "add-delta": self.add}
        of |= {"witten-bell": self.witten_bell, "jelinek-mercer": self.jelinek_mercer}
        of |= {"katz": self.katz}
        prob = of.get(self.smoothing, self.kneser_ney)
        return {w: prob(context, w) for w in self.vocabulary}

    def total(self, counts, context):
        return sum(counts[(*context, w)] for w in self.following[context])

    def likelihood(self, context, word):
        if context and not self.following[context]:
            return self.likelihood(context[1:], word)
        return self.raw[(*context, word)] / self.total(self.raw, context)

    def add(self, context, word):
        if context and not self.following[context]:
            return self.add(context[1:], word)
        every = self.delta * len(self.vocabulary)
        seen = self.raw[(*context, word)]
        return (seen + self.delta) / (self.total(self.raw, context) + every)

    def stupid(self, context, word):
        if seen := self.raw[(*context, word)]:
            return seen / self.total(self.raw, context)
        if context:
            return self.factor * self.stupid(context[1:], word)
        return self.factor / len(self.vocabulary)

    def witten_bell(self, context, word):
        shorter = self.witten_bell(context[1:], word) if context else 1 / len(self.vocabulary)
        kinds = len(self.following[context])
        if not kinds:
            return shorter
        total = self.total(self.raw, context)
        return (self.raw[(*context, word)] + kinds * shorter) / (total + kinds)

    def jelinek_mercer(self, context, word):
        shorter = self.jelinek_mercer(context[1:], word) if context else 1 / len(self.vocabulary)
        if not self.following[context]:
            return shorter
        weight = self.weights[len(context)]
        own = self.raw[(*context, word)] / self.total(self.raw, context)
        return weight * own + (1 - weight) * shorter

    def factor_of(self, n, r):
        """Katz (1987), equation 15, with k = 5; else what subtracting a half leaves."""
        of = Counter(count for gram, count in self.raw.items() if len(gram) == n and count)
        if not all(of[r] for r in range(1, 7)):
            return 1 - 0.5 / r
        beyond = Fraction(6 * of[6], of[1])
        factors = [
            (Fraction((r + 1) * of[r + 1], r * of[r]) - beyond) / (1 - beyond) if beyond != 1 else 0
            for r in range(1, 6)
        ]
        if not all(0 < factor < 1 for factor in factors):
            return 1 - 0.5 / r
        return float(factors[r - 1]) if r <= 5 else 1.0

    def katz(self, context, word):
        total, n = self.total(self.raw, context), len(context) + 1
        seen = {w: self.raw[(*context, w)] for w in self.following[context]}
        own = {w: self.factor_of(n, r) * r / total for w, r in seen.items()}
        if not context:
            unseen = len(self.vocabulary) - len(own)
            left = 1 - sum(own.values())
            if not unseen:
                return own[word] / sum(own.values())
            return own.get(word, left / unseen)
        lower = sum(self.katz(context[1:], w) for w in own)
        if own and lower > 1 - 1e-12:
            return own.get(word, 0.0) / sum(own.values())
        if own and sum(own.values()) > 1 - 1e-12:  # only counts that lose nothing
            own = {w: p * total / (total + 1) for w, p in own.items()}
        if word in own:
            return own[word]
        return (1 - sum(own.values())) / (1 - lower) * self.katz(context[1:], word)

    def kneser_ney(self, context, word):
        shorter = self.kneser_ney(context[1:], word) if context else 1 / len(self.vocabulary)
        if not self.following[context]:
            return shorter
        discounts = self.discounts[len(context) + 1]
        counts = [self.adjusted[(*context, w)] for w in self.following[context]]
        left = sum(discounts[min(c, 3) - 1] for c in counts)
        count = self.adjusted.get((*context, word), 0)
        mine = count - discounts[min(count, 3) - 1] if count else 0
        return (mine + left * shorter) / sum(counts)


def rows(model, contexts):
    """Return the distributions after contexts of any lengths, the start of a text before each."""
    return [row(model, context) for context in contexts]


def row(model, context):
    return model(torch.tensor([context]))[0][0, -1].exp().tolist()


def contexts_of(corpus, order):
    """Return contexts that were seen, and some that were not."""
    seen = {t[max(0, i - order + 1) : i] for t in texts_of(corpus) for i in range(1, len(t) + 1)}
    strange = [tuple((w + i) % (V - UNK) + UNK for i in range(order)) for w in range(V)]
    return [c for c in (*sorted(seen), *strange) if c]


def check_against_oracle(corpus, impossible, order, smoothing):
    model, _ = fitted(corpus, impossible, order=order, smoothing=smoothing)
    oracle = Oracle(corpus, impossible, order, smoothing)
    contexts = contexts_of(corpus, order)
    for context, got in zip(contexts, rows(model, contexts), strict=True):
        wanted = oracle.distribution(context)
        assert got == pytest.approx([wanted.get(w, 0.0) for w in range(V)], abs=1e-12), context


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@given(documents=lines, order=st.integers(1, 4))
@quick
def test_lines_equal_the_slow_definition(smoothing, documents, order):
    check_against_oracle(*line_corpus(documents), order, smoothing)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@given(text=streams, order=st.integers(1, 4))
@quick
def test_streams_equal_the_slow_definition(smoothing, text, order):
    check_against_oracle(*stream_corpus(text), order, smoothing)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@given(documents=lines, order=st.integers(1, 5), limits=st.tuples(*[st.integers(0, 2)] * 3))
@quick
def test_every_distribution_sums_to_one(smoothing, documents, order, limits):
    corpus, impossible = line_corpus(documents)
    prune = ",".join(map(str, (0, *sorted(limits))))
    model, _ = fitted(corpus, impossible, order=order, smoothing=smoothing, prune=prune)
    for got in rows(model, contexts_of(corpus, order)):
        assert sum(got) == pytest.approx(1, abs=1e-9)
        assert min(got) >= 0
        assert all(got[w] == 0 for w in impossible)


@needs("smoothings")
def test_katz_leaves_something_after_what_was_always_followed_by_one_word():
    """6 follows nothing but 5, and often: no count above 5 is discounted."""
    draw = np.random.default_rng(324)  # one that gives discounts of 3-grams
    chances = [0.1, 0.3, 0.6]
    texts = [draw.choice([3, 7, 8], draw.integers(1, 6), p=chances).tolist() for _ in range(40)]
    corpus, impossible = line_corpus([*texts, *([[5, 6]] * 9)])
    model, found = fitted(corpus, impossible, order=4, smoothing="katz")
    assert 3 not in found.fallbacks
    oracle = Oracle(corpus, impossible, 4, "katz")
    for context in contexts_of(corpus, 4):
        wanted = oracle.distribution(context)
        got = row(model, context)
        assert got == pytest.approx([wanted.get(w, 0.0) for w in range(V)], abs=1e-12)
        assert all(got[w] > 0 for w in wanted if w != 4)


@pytest.mark.parametrize("smoothing", SMOOTHINGS[2:])
@given(documents=lines, order=st.integers(1, 4), digits=st.integers(0, 5))
@quick
def test_every_distribution_sums_to_one_when_pruned_by_entropy(smoothing, documents, order, digits):
    corpus, impossible = line_corpus(documents)
    how = {"order": order, "smoothing": smoothing, "prune_entropy": 10.0**-digits}
    model, _ = fitted(corpus, impossible, **how)
    for got in rows(model, contexts_of(corpus, order)):
        assert sum(got) == pytest.approx(1, abs=1e-9)
        assert min(got) >= 0


def random_lines(seed, count):
    draw = np.random.default_rng(seed)
    return [draw.choice([3, 5, 6, 7, 8], draw.integers(1, 8)).tolist() for _ in range(count)]


@pytest.mark.parametrize(
    "smoothing",
    [
        pytest.param("witten-bell", marks=needs("smoothings")),
        pytest.param("katz", marks=needs("smoothings")),
        "modified-kneser-ney",
    ],
)
def test_entropy_pruning_drops_what_raises_the_perplexity_least(smoothing):
    """Of a bigram model: each pair's rise by its definition, over whole distributions."""
    corpus, impossible = line_corpus(random_lines(1, 30))
    model, _ = fitted(corpus, impossible, order=2, smoothing=smoothing)
    unigrams = model.arrays.log_probs[1].copy()
    lower = np.exp(unigrams)
    ends = corpus.ends.size
    rises = {}
    for key in model.arrays.keys[2].tolist():
        context = key // V
        kept = [k % V for k in model.arrays.keys[2].tolist() if k // V == context and k != key]
        before = np.array(row(model, [context]))
        after = np.array([before[w] if w in kept else 0 for w in range(V)])
        others = np.array([w not in kept for w in range(V)])
        after += others * lower * (1 - after.sum()) / lower[others].sum()
        chance = ends / corpus.tokens.size if context == BOS else lower[context]
        some = before > 0
        loss = (before[some] * np.log(before[some] / after[some])).sum()
        rises[key] = math.expm1(chance * loss)
    for threshold in (1e-4, 1e-3, 3e-3, 1e-2):
        how = {"order": 2, "smoothing": smoothing, "prune_entropy": threshold}
        pruned, _ = fitted(corpus, impossible, **how)
        expected = [key for key, rise in rises.items() if rise >= threshold]
        assert pruned.arrays.keys[2].tolist() == expected
    assert 0 < len(expected) < len(rises)


def test_entropy_pruning_keeps_what_longer_ngrams_continue():
    corpus, impossible = line_corpus(random_lines(2, 40))
    sizes = []
    for threshold in (0.0, 1e-4, 1e-3, 1e-2):
        model, _ = fitted(corpus, impossible, order=4, prune_entropy=threshold)
        sizes.append(model.arrays.parameter_count())
        for n in (3, 4):  # each context is there: its place is in the table below
            assert (model.arrays.keys[n] // V < model.arrays.log_probs[n - 1].size).all()
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 4


@needs("smoothings")
def test_weights_of_orders_are_the_likeliest_on_held_out_text():
    draw = np.random.default_rng(3)
    texts = []
    for _ in range(300):  # the next word follows from the last two, but for one in four
        text = [5, 6]
        while len(text) < 9:
            follows = 5 + (text[-1] + 2 * text[-2]) % 4
            text.append(follows if draw.random() > 0.25 else int(draw.integers(5, 9)))
        texts.append(text)
    corpus, impossible = line_corpus(texts)
    possible = np.isin(np.arange(V), impossible, invert=True)
    config = NGramConfig(vocab_size=V, order=3, smoothing="jelinek-mercer")
    known, held_out = corpus.take(np.arange(270)), corpus.take(np.arange(270, 300))
    oracle = Oracle(known, impossible, 3, "jelinek-mercer")

    def likelihood(weights):
        oracle.weights = weights
        return sum(
            math.log(oracle.jelinek_mercer(text[max(0, i - 2) : i], text[i]))
            for text in texts_of(held_out)
            for i in range(1, len(text))
        )

    from seqgen.plugins.smoothings.jelinek_mercer import order_weights

    found = order_weights(corpus, config, possible)
    best = likelihood(found)
    for n, change in itertools.product(range(3), (-0.03, 0.03)):
        other = [w + change * (i == n) for i, w in enumerate(found)]
        if 0 < other[n] < 1:
            assert likelihood(other) < best


@needs("smoothings")
@pytest.mark.parametrize(
    ("numbers", "wanted"),
    [
        # 6 n6 / n1 = 0.3, d1 = (2 8/20 - 0.3) / 0.7, ..., d5 = (6 1/(5 2) - 0.3) / 0.7
        ((20, 8, 5, 3, 2, 1), (5 / 7, 51 / 56, 5 / 7, 16 / 21, 3 / 7)),
        ((9, 3, 2, 2, 2, 1), None),  # d1 = 0
        ((9, 3, 2, 2, 2, 0), None),
        ((6, 3, 1, 1, 1, 1), None),  # 6 n6 = n1
    ],
)
def test_katz_by_hand(numbers, wanted):
    """Lines of one word: so many words that were seen 1, 2, ..., 6 times; their ends are no n_r."""
    counts = [r for r, number in enumerate(numbers, start=1) for _ in range(number)]
    documents = [[5 + i] for i, count in enumerate(counts) for _ in range(count)]
    corpus, _ = line_corpus(documents)
    model = NGram(NGramConfig(vocab_size=5 + len(counts), order=1, smoothing="katz")).double()
    found = fit(model, corpus, [PAD, BOS, NEWLINE])
    assert found.fallbacks == ([] if wanted else [1])
    assert found.discounts == [pytest.approx(wanted or (0.5,))]
    total, probs = 2 * len(documents), np.exp(model.arrays.log_probs[1])
    assert probs[5] == pytest.approx((wanted[0] if wanted else 0.5) / total)
    # What all of them lost is what the unknown word has.
    assert probs[UNK] == pytest.approx(1 - probs[5:].sum() - probs[EOS])


def test_maximum_likelihood_and_add_delta_by_hand():
    a, b, c = 5, 6, 7
    corpus, impossible = line_corpus([[a, b], [a, b], [a, c]])
    model, _ = fitted(corpus, impossible, order=2, smoothing="maximum-likelihood")
    assert row(model, [BOS])[a] == 1
    assert row(model, [a]) == pytest.approx([0, 0, 0, 0, 0, 0, 2 / 3, 1 / 3, 0])
    # Nothing ever followed an 8: back to single words, nine of them with the ends.
    assert row(model, [8]) == pytest.approx([0, 0, 3 / 9, 0, 0, 3 / 9, 2 / 9, 1 / 9, 0])
    # Words that can be: </s>, <unk>, 5, 6, 7, 8.
    model, _ = fitted(corpus, impossible, order=2, smoothing="add-delta", delta=0.5)
    half = 0.5 / (3 + 6 * 0.5)
    assert row(model, [a]) == pytest.approx(
        [0, 0, half, half, 0, half, 2.5 / 6, 1.5 / 6, half], abs=1e-12
    )


def lectures_kneser_ney(corpus, order, discount, context, word):
    """Return p_KN in exact fractions, of a fixed discount d and plain continuation unigrams.

    max(c(context word) - d, 0) / c(context) + lambda p_KN(word), counts below the highest order
    being numbers of distinct words before; p_KN(word) is the number of distinct words before it,
    divided by the number of distinct pairs of consecutive words.
    """
    texts = texts_of(corpus)
    ngrams = Counter(
        text[i : i + order] for text in texts for i in range(len(text) - order + 1)
    )  # of the highest order; below, what ends the distinct ones that are one word longer
    for n in range(order - 1, len(context), -1):
        starts = Counter(t[:n] for t in texts if n > 1 and len(t) >= n and t[0] == BOS)
        longer = {t[i : i + n + 1] for t in texts for i in range(len(t) - n)}
        ngrams = Counter(gram[1:] for gram in longer) + starts
    if not context:
        return Fraction(ngrams[(word,)], sum(ngrams.values()))
    following = {gram[-1]: c for gram, c in ngrams.items() if gram[:-1] == context}
    lower = lectures_kneser_ney(corpus, order, discount, context[1:], word)
    if not following:
        return lower
    total = sum(following.values())
    seen = max(following.get(word, 0) - discount, Fraction(0))
    return seen / total + discount * len(following) / total * lower


@given(documents=lines, order=st.integers(2, 4), quarters=st.integers(1, 4))
@quick
def test_a_fixed_discount_and_plain_unigrams_equal_exact_fractions(documents, order, quarters):
    corpus, impossible = line_corpus(documents)
    fixed = {"discount": quarters / 4, "interpolate_unigrams": False}
    model, found = fitted(corpus, impossible, order=order, smoothing="kneser-ney", **fixed)
    assert found.discounts == [[0.0]] + [[quarters / 4]] * (order - 1)
    assert found.fallbacks == []
    contexts = contexts_of(corpus, order)
    for context, got in zip(contexts, rows(model, contexts), strict=True):
        last = context[-(order - 1) :]
        wanted = [
            lectures_kneser_ney(corpus, order, Fraction(quarters, 4), last, w) for w in range(V)
        ]
        assert sum(wanted) == 1
        assert got == pytest.approx(list(map(float, wanted)), abs=1e-12), context


def test_a_fixed_discount_by_hand():
    """san francisco x 3 and others; the discount is 0.75."""
    san, francisco, the, a = 5, 6, 7, 8
    documents = [[san, francisco]] * 3 + [[the, a], [a, the], [the, san], [a]]
    corpus, impossible = line_corpus(documents)
    fixed = {"order": 2, "smoothing": "kneser-ney", "discount": 0.75}
    model, _ = fitted(corpus, impossible, **fixed, interpolate_unigrams=False)
    # Pairs: <s> san, <s> the, <s> a, san francisco, the a, the san, the </s>, a the, a </s>,
    # san </s>, francisco </s>: eleven, of which one ends in francisco and two in a.
    assert row(model, [san])[francisco] == pytest.approx((3 - 0.75) / 4 + 0.75 * 2 / 4 / 11)
    assert row(model, [the])[francisco] == pytest.approx(0.75 * 3 / 3 / 11)
    assert row(model, [the])[a] == pytest.approx((1 - 0.75) / 3 + 0.75 * 2 / 11)
    assert row(model, [the])[UNK] == 0
    # Interpolated, the five kinds of word each lose 0.75 of 11, for six possible tokens.
    model, found = fitted(corpus, impossible, **fixed)
    assert found.discounts == [[0.75], [0.75]]
    unigram = (1 - 0.75) / 11 + 0.75 * 5 / 11 / 6
    assert row(model, [the])[francisco] == pytest.approx(0.75 * 3 / 3 * unigram)
    assert row(model, [the])[UNK] == pytest.approx(0.75 * 0.75 * 5 / 11 / 6)


@given(text=streams, order=st.integers(1, 4), last=st.integers(0, 2))
@quick
def test_plain_unigrams_sum_to_one_when_pruned(text, order, last):
    corpus, impossible = stream_corpus(text)
    for more in ({"smoothing": "modified-kneser-ney"}, {"smoothing": "kneser-ney", "discount": 1}):
        more |= {"interpolate_unigrams": False, "prune": f"0,0,{last}"}
        model, _ = fitted(corpus, impossible, order=order, **more)
        contexts = contexts_of(corpus, order)
        for context, got in zip(contexts, rows(model, contexts), strict=True):
            assert sum(got) == pytest.approx(1, abs=1e-9), context
            assert min(got) >= 0


def test_kneser_ney_settings_of_other_smoothings_are_refused():
    with pytest.raises(UsageError, match="discount needs --smoothing kneser-ney"):
        NGramConfig(vocab_size=V, discount=0.75)
    with pytest.raises(UsageError, match="interpolate_unigrams=false needs"):
        NGramConfig(vocab_size=V, smoothing="add-delta", interpolate_unigrams=False)


def test_kneser_ney_by_the_lectures_formula():
    """A bigram: max(c - D, 0) / c(context) + lambda p_continuation, above a uniform floor."""
    san, francisco, the, a = 5, 6, 7, 8
    documents = [[san, francisco]] * 3 + [[the, a], [a, the], [the, san], [a]]
    model, found = fitted(*line_corpus(documents), order=2, smoothing="kneser-ney")
    # Bigrams seen once: <s> san has 3; <s> the 2; <s> a 2; the others:
    once = ["the a", "a the", "the </s>", "the san", "san </s>"]
    twice = ["<s> the", "<s> a", "a </s>"]
    d2 = len(once) / (len(once) + 2 * len(twice))
    # Different words before: san 2 (<s> the), francisco 1, the 2, a 2, </s> 4.
    d1 = 1 / (1 + 2 * 3)
    assert [d for (d,) in found.discounts] == pytest.approx([d1, d2])
    lower = (1 - d1) / 11 + d1 * 5 / 11 / 6  # of francisco: five kinds of word, six possible
    assert row(model, [san])[francisco] == pytest.approx((3 - d2) / 4 + d2 * 2 / 4 * lower)
    assert row(model, [the])[francisco] == pytest.approx(d2 * 3 / 3 * lower)


def test_what_gives_no_discounts_falls_back_as_kenlm_does():
    model, found = fitted(*line_corpus([[5, 6], [6, 5]]), order=2)
    assert found.fallbacks == [1, 2]
    assert found.discounts == [[0.5, 1, 1.5]] * 2
    assert sum(row(model, [5])) == pytest.approx(1)


@pytest.mark.parametrize(
    ("frequencies", "wanted"),
    [
        # n1 = 4, n2 = 2, n3 = 1: Y = 1/2, D1 = 1 - 2/4, D2 = 2 - 3/4, and D3+ = 3 - 2 n4.
        ((1, 1, 1, 1, 2, 2, 3, 4), (0.5, 1.25, 1.0)),
        ((1, 1, 1, 1, 2, 2, 3, 9), (0.5, 1.25, 3.0)),  # n4 = 0
        ((1, 1, 1, 1, 2, 2, 3, 4, 4), None),  # D3+ = -1
        ((1, 1, 1, 2, 2, 2, 4), None),  # n3 = 0: D3+ would have no meaning
        ((1, 1, 3, 3, 4), None),  # n2 = 0
        ((2, 2, 2, 3, 4), None),  # n1 = 0
    ],
)
def test_discounts_by_hand(frequencies, wanted):
    """Lines of one word, so that the single words' counts are these; their ends are no n_j."""
    documents = [[5 + i] for i, count in enumerate(frequencies) for _ in range(count)]
    ends = sum(frequencies)
    assert ends > 4
    corpus, _ = line_corpus(documents)
    model = NGram(NGramConfig(vocab_size=5 + len(frequencies), order=1))
    found = fit(model, corpus, [PAD, BOS, NEWLINE])
    assert found.fallbacks == ([] if wanted else [1])
    assert found.discounts == [pytest.approx(wanted or (0.5, 1, 1.5))]


def test_pruning_drops_by_count_and_keeps_the_rest():
    documents = [[5, 6, 7]] * 3 + [[6, 7, 8]] * 2 + [[5, 7, 8]]
    full, whole = fitted(*line_corpus(documents), order=3)
    model, found = fitted(*line_corpus(documents), order=3, prune="0,1,2")
    counts = Counter(
        text[i : i + n]
        for text in texts_of(line_corpus(documents)[0])
        for n in (2, 3)
        for i in range(len(text) - n + 1)
    )
    assert whole.ngrams[1:] == [sum(len(g) == n for g in counts) for n in (2, 3)]
    assert found.ngrams[1:] == [
        sum(len(g) == n and c > limit for g, c in counts.items()) for n, limit in ((2, 1), (3, 2))
    ]
    # What was kept keeps its discounted count; what was dropped is backed off to.
    assert row(model, [5, 6])[7] == pytest.approx(row(full, [5, 6])[7], rel=0.05)
    assert found.discounts == whole.discounts


def test_wrong_settings_are_told():
    for wrong in (
        {"order": 0},
        {"order": 256},
        {"delta": 0},
        {"backoff": 2},
        {"prune": "1"},
        {"prune": "0,2,1"},
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            NGramConfig(vocab_size=3, **wrong)
    with pytest.raises(UsageError, match="smoothing is one of maximum-likelihood"):
        fitted(*line_corpus([[5]]), smoothing=None)


# The contract of every LanguageModel, on a model that has counted something.


def some_model(smoothing="modified-kneser-ney", order=4, dtype=torch.float64):
    generator = np.random.default_rng(3)
    documents = [generator.integers(UNK + 2, V, size=6).tolist() for _ in range(60)]
    return fitted(*line_corpus(documents), dtype, order=order, smoothing=smoothing)[0]


def some_tokens(*shape, seed=0):
    return torch.randint(UNK, V, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
# The documents are of 8 words, ends included: of order 12 nothing is stored.
@pytest.mark.parametrize("order", [1, 2, 4, 12])
def test_scores_ranks_and_hits_are_those_of_the_logits(smoothing, order):
    model, tokens = some_model(smoothing, order), some_tokens(3, 40)
    logits, after = model(tokens, model.start(3))
    assert not logits.isnan().any() and (logits > -torch.inf).any(-1).all()
    shifted = torch.cat([tokens[:, 1:], tokens[:, :1]], 1)
    for targets in (shifted, some_tokens(3, 40, seed=1)):
        wanted = logits.gather(-1, targets[..., None]).squeeze(-1)
        scores, state = model.score(tokens, targets, model.start(3))
        torch.testing.assert_close(scores.log_probs, wanted, rtol=0, atol=1e-12)
        torch.testing.assert_close(state.ids, after.ids)
        again, _ = model.score(tokens, targets, model.start(3), "hits")
        torch.testing.assert_close(again.log_probs, scores.log_probs)
        best = logits.max(-1, keepdim=True).values
        first = torch.where(logits == best, torch.arange(V), V).min(-1).values
        assert torch.equal(again.hits, first == targets)
        ranked, _ = model.score(tokens, targets, model.start(3), "ranks")
        before = (logits > wanted[..., None]) | (
            (logits == wanted[..., None]) & (torch.arange(V) < targets[..., None])
        )
        assert torch.equal(ranked.ranks, before.sum(-1))


@given(data=st.data())
@quick
def test_hits_are_right_whatever_the_backoffs(data):
    """As an imported model's: a word may lose by being stored."""
    model, tokens = some_model(order=3), some_tokens(4, 60)
    seed = data.draw(st.integers(0, 1000))
    generator = torch.Generator().manual_seed(seed)
    for name, table in model.named_buffers():
        if table.is_floating_point():
            # Few different values, so that there are ties.
            noise = torch.randint(-4, 1, table.shape, generator=generator).double()
            table.copy_(noise if "log_probs" in name else noise / 2)
    logits, _ = model(tokens)
    best = logits.max(-1, keepdim=True).values
    first = torch.where(logits == best, torch.arange(V), V).min(-1).values
    for targets in (first, some_tokens(4, 60, seed=seed)):
        scores, _ = model.score(tokens, targets, model.start(4), "hits")
        assert torch.equal(scores.hits, first == targets)


@given(cuts=st.sets(st.integers(1, 11)).map(sorted))
@quick
def test_any_split_gives_the_same_logits(cuts):
    model, tokens = some_model(), some_tokens(3, 12)
    whole, none = model(tokens)
    assert none is None
    state, pieces = model.start(3), []
    for begin, end in itertools.pairwise([0, *cuts, 12]):
        logits, state = model(tokens[:, begin:end], state)
        pieces.append(logits)
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=0, atol=0)
    torch.testing.assert_close(model(tokens, last=2)[0], whole[:, -2:], rtol=0, atol=0)


def test_states_are_selected_joined_and_copied():
    model = some_model()
    long, short = some_tokens(2, 9), some_tokens(1, 1, seed=5)
    _, first = model(long, model.start(2))
    _, second = model(short, model.start(1))
    kept = first.copy()
    joined = type(first).cat([first.select([1, 0, 1]), second])
    following = some_tokens(4, 3, seed=6)
    logits, _ = model(following, joined)
    for i, past in enumerate([long[1], long[0], long[1], short[0]]):
        alone, _ = model(torch.cat([past, following[i]])[None])
        torch.testing.assert_close(logits[i], alone[0, -3:], rtol=0, atol=0)
    again, _ = model(following[:2], kept)
    torch.testing.assert_close(again[0], model(torch.cat([long[0], following[0]])[None])[0][0, -3:])


def test_distributions_are_kept_and_the_store_of_them_is_bounded(monkeypatch):
    model, tokens = some_model(), some_tokens(8, 30)
    wanted, _ = model(tokens)
    monkeypatch.setattr("seqgen.models.ngram.steps.LOGITS_AT_ONCE", 5 * V)
    state, seen = model.start(8), []
    for token in tokens.T.tolist():
        logits, state = model.step(token, state)
        seen.append(logits)
        assert 0 < len(model.arrays.steps._rows) <= 5
    torch.testing.assert_close(torch.from_numpy(np.stack(seen, 1)), wanted, rtol=0, atol=0)


def test_a_stored_model_is_the_same_and_damage_is_told(tmp_path):
    model = some_model(dtype=torch.float32)
    stored = StoredModel(tmp_path)
    stored.write_config("ngram", model=model.config.to_dict(), data={})
    stored.write_weights(model)
    CharTokenizer("abcd").save(tmp_path / "tokenizer")
    loaded, _ = stored.load()
    tokens = some_tokens(2, 20)
    assert torch.equal(loaded(tokens)[0], model(tokens)[0])
    assert loaded.parameter_count() == model.parameter_count()
    # A model that has counted nothing has tables without n-grams, and can be stored as well.
    empty = NGram(NGramConfig(vocab_size=V, order=3))
    stored.write_config("ngram", model=empty.config.to_dict(), data={})
    stored.write_weights(empty)
    assert stored.load()[0](tokens)[0].exp().sum(-1) == pytest.approx(torch.ones(2, 20))
    stored.write_config("ngram", model={**empty.config.to_dict(), "order": 4}, data={})
    with pytest.raises(SeqgenError, match="damaged"):
        stored.load()


def out_of_order(keys):
    return keys.flip(0)


def twice(keys):
    return keys.clone().index_copy_(0, torch.tensor([1]), keys[:1])


def below_zero(keys):
    return keys.clone().index_fill_(0, torch.tensor([0]), -1)


def beyond_the_shorter(keys):
    return keys.clone().index_fill_(0, torch.tensor([len(keys) - 1]), 1 << 40)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("damage", [out_of_order, twice, below_zero, beyond_the_shorter])
def test_damaged_keys_are_one_line(damage, order, tmp_path):
    model = some_model(dtype=torch.float32)
    stored = StoredModel(tmp_path)
    stored.write_config("ngram", model=model.config.to_dict(), data={})
    CharTokenizer("abcd").save(tmp_path / "tokenizer")
    keys = model.get_buffer(f"keys_{order}")
    assert len(keys) > 1 and not torch.equal(damage(keys), keys)
    model._buffers[f"keys_{order}"] = damage(keys)
    stored.write_weights(model)
    with pytest.raises(SeqgenError, match="damaged") as told:
        stored.load()
    assert "\n" not in str(told.value)


def test_bf16_leaves_the_tables_in_float32():
    model = some_model(dtype=torch.bfloat16)
    logits, _ = model(some_tokens(1, 4))
    assert logits.dtype == torch.float32
    assert logits.exp().sum(-1).tolist() == [pytest.approx([1] * 4, abs=1e-5)]


def test_unseen_fractions():
    corpus, impossible = line_corpus([[5, 6, 7]])
    model, _ = fitted(corpus, impossible, order=3)
    other, _ = line_corpus([[5, 6, 8], []])
    # words 5 6 8 </s> </s>; pairs <s>5 56 68 8</s> <s></s>; triples <s>56 568 68</s>
    assert unseen_fractions(model, other, corpus) == pytest.approx([1 / 5, 3 / 5, 2 / 3])


# The commands.


def test_training_ignores_the_budget_and_says_so(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    text = tmp_path / "text.txt"
    text.write_text("the cat sat\nthe dog sat\nthe cat ran\na dog ran\n" * 5)
    flags = ["--model", "ngram", "--order", "3", "--documents", "line", "--name", "n"]
    words = ["--tokenizer", "whitespace"]
    assert run(["train", str(text), *flags, *words, "--steps", "7", "--lr", "1", "--json"]) == 0
    out, said = capfd.readouterr()
    record = json.loads(out)
    for key in ("steps", "train_loss", "stopped", "seed"):
        assert record[key] is None
    assert record["tokens"] == 18 * 4  # of the 20 lines two are held out
    assert "n-gram models are counted in one pass; ignored: lr, steps" in said
    assert "too few counts to estimate discounts for 1- to 3-grams; using 0.5, 1, 1.5" in said
    assert said.count("0.5, 1, 1.5") == 1
    assert run(["perplexity", "-m", "n", "--json", "-q"]) == 0
    scored = json.loads(capfd.readouterr().out)
    assert scored["nll_nats"] / scored["tokens"] == pytest.approx(record["val_loss"], rel=1e-9)
    assert run(["models", "show", "n", "--json"]) == 0
    grams = json.loads(capfd.readouterr().out)["training"]["ngrams"]
    assert [g["possible"] for g in grams] == [11, 11**2, 11**3]
    assert grams[0]["stored"] == 9  # six words, <s>, </s>, <unk>
    assert grams[2]["held_out_unseen"] == 0
    assert grams[1]["discounts"] == [0.5, 1, 1.5]
    assert run(["models", "show", "n", "--all"]) == 0
    assert "9 stored of 11 possible" in capfd.readouterr().out
    assert run(["sample", "the", "-m", "n", "--greedy", "--max-tokens", "3", "-q"]) == 0
    assert capfd.readouterr().out in {" cat sat\n", " cat ran\n", " dog sat\n", " dog ran\n"}
    assert run(["train", str(text), *flags, "--smoothing", "kn", "--overwrite"]) == 2
    assert "modified-kneser-ney" in capfd.readouterr().err


def test_an_impossible_text_is_null_in_json(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    text, other = tmp_path / "text.txt", tmp_path / "other.txt"
    text.write_text("abab\n" * 9)
    other.write_text("bb\n")
    flags = ["--model", "ngram", "--order", "2", "--smoothing", "maximum-likelihood"]
    assert run(["train", str(text), *flags, "--name", "n", "--val", str(other), "--json"]) == 0
    out, said = capfd.readouterr()
    assert json.loads(out)["val_loss"] is None
    assert "probability 0" in said
    assert run(["perplexity", str(other), "-m", "n", "--json", "-q"]) == 0
    record = json.loads(capfd.readouterr().out)
    assert record["nll_nats"] is None and record["perplexity"] is None
    assert run(["perplexity", str(other), "-m", "n"]) == 0
    assert "inf" in capfd.readouterr().out


# KenLM's figures.

BESIDE = ROOT.parent / "shared" / "reference"


@pytest.fixture(scope="module")
def kenlm():
    path = BESIDE / "kenlm.json"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    return json.loads(path.read_text(encoding="utf-8"))


def shared(name):
    folder = Path(os.environ.get("SEQGEN_TEST_DATA") or BESIDE.parent / "data")
    path = folder / name
    if not path.exists():
        pytest.skip(f"{path} is missing; set SEQGEN_TEST_DATA to the folder that holds {name}")
    return path.read_text(encoding="utf-8")


def prepared(corpus):
    """Return training and test text as the reference's notes say, and check them by hash."""
    if corpus == "ptb":
        return [shared(f"ptb/ptb.{p}.txt").replace("<unk>", "UNK") for p in ("train", "test")]
    if corpus == "wikitext2":
        texts = [shared(f"wikitext-2/{p}.txt").replace("<unk>", "UNK") for p in ("train", "test")]
        kept = [[" ".join(x.split()) for x in t.split("\n") if x.strip()] for t in texts]
        return ["".join(f"{line}\n" for line in part) for part in kept]
    text = shared("tinyshakespeare.txt")
    kept = [" ".join(x.lower().split()) for x in text.split("\n") if x.strip()]
    at = len(kept) * 9 // 10
    return ["".join(f"{line}\n" for line in part) for part in (kept[:at], kept[at:])]


def discounts_of(counts):
    """Return D1, D2 and D3+ by the counts of counts (Chen and Goodman 1998, equation 26)."""
    found = Counter(counts.tolist())
    y = found[1] / (found[1] + 2 * found[2])
    return [i - (i + 1) * y * found[i + 1] / found[i] for i in (1, 2, 3)]


def kenlms_statistics(grams, corpus):
    """Return the adjusted counts that KenLM takes counts of: with a slip in its last unigram.

    When its stream of n-grams ends (adjust_counts.cc: "This outputs the last n-grams"), it notes
    how often the unigram occurs, not after how many words. The last one is the word that was new
    last: in Penn Treebank it stands five times or more, after four words.
    """
    kinds, firsts = np.unique(corpus.tokens, return_index=True)
    last = kinds[firsts.argmax()]
    adjusted = grams.adjusted[:].copy()
    adjusted[last] = grams.raw[:][last]
    return adjusted


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["ptb", "tinyshakespeare_word", "wikitext2"])
def test_kenlm_gives_the_same_figures(kenlm, corpus):
    train, test = prepared(corpus)
    for part, text in (("train", train), ("test", test)):
        wanted = kenlm["corpora"][corpus]["prepared"][part]["sha256"]
        assert hashlib.sha256(text.encode()).hexdigest() == wanted
    tokenizer = WhitespaceTokenizer.train([train])
    known = encode_corpus([train], tokenizer, "line")
    unknown = encode_corpus([test], tokenizer, "line")
    impossible = [tokenizer.pad_id, tokenizer.bos_id, tokenizer.newline_id]
    possible = ~np.isin(np.arange(tokenizer.vocab_size), impossible)
    config = NGramConfig(vocab_size=tokenizer.vocab_size, order=2)
    grams = count(known, config, possible)[0]
    references = [r for r in kenlm["results"] if r["corpus"] == corpus]
    assert sorted(r["order"] for r in references) == [2, 3, 5]
    for reference in references:
        order = reference["order"]
        model = NGram(NGramConfig(vocab_size=tokenizer.vocab_size, order=order))
        found = fit(model, known, impossible)
        scored = list(score_corpus(model, unknown))
        totals = add_up(scored, tokenizer)
        wanted = reference["test"]
        assert (totals.tokens, totals.oov) == (wanted["tokens"], wanted["oov"])
        assert totals.perplexity == pytest.approx(wanted["ppl_including_oov"], rel=2e-5)
        assert totals.perplexity_without_oov == pytest.approx(wanted["ppl_excluding_oov"], rel=2e-5)
        for n, size in reference["arpa_ngram_counts_incl_unk_s_eos"].items():
            assert found.ngrams[int(n) - 1] == size
        for n, amounts in reference["modified_kneser_ney_discounts"].items():
            mine = found.discounts[int(n) - 1]
            if n == "1":
                assert mine == pytest.approx(discounts_of(grams.adjusted[:]))
                mine = discounts_of(kenlms_statistics(grams, known))
            assert mine == pytest.approx(list(amounts.values()), rel=1e-5)
        table = BESIDE / f"kenlm_{corpus}_test_order{order}_sentences.tsv"
        if table.exists():
            sums = np.zeros(unknown.ends.size)
            for piece in scored:
                np.add.at(sums, piece.documents, piece.log_probs)
            rows = [line.split("\t") for line in table.read_text().split("\n")[1:] if line]
            wanted_sums = np.array([float(r[1]) for r in rows])
            np.testing.assert_allclose(sums / math.log(10), wanted_sums, rtol=5e-5)


@pytest.mark.fast_for("dtype0-1-*", "dtype1-2-*", "dtype0-4-*", "dtype1-12-*", rest="slow")
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [1, 2, 4, 12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_the_same_to_the_bit_as_calls(smoothing, order, dtype, monkeypatch):
    """One look-up for each order, whatever rows are remembered; and none of them is written in."""
    model, tokens = some_model(smoothing, order, dtype), some_tokens(5, 30)
    tokens[0, :3] = tokens[1, :3]  # rows that share their contexts
    for most in (1, 1 << 23):
        monkeypatch.setattr("seqgen.models.ngram.steps.LOGITS_AT_ONCE", most)
        by_call, by_step = model.start(5), model.start(5)
        for column in tokens.T:
            called, by_call = model(column[:, None], by_call)
            stepped, by_step = model.step(column.tolist(), by_step)
            assert torch.equal(torch.from_numpy(stepped), called[:, 0])
            assert by_step.ids.tolist() == by_call.ids.tolist()
            stepped[:] = 0
        rows = [some[[3, 1]] for some in tokens.split(10, 1)]
        _, joined = model(rows[0], model.start(2))  # a context that no step has read
        stepped, _ = model.step(rows[1][:, 0].tolist(), joined.copy())
        called, _ = model(rows[1][:, :1], joined)
        assert torch.equal(torch.from_numpy(stepped), called[:, 0])


def test_steps_read_the_tables_that_a_model_has_now():
    model, other = some_model("kneser-ney"), some_model("add-delta")
    model.step([5], model.start(1))
    twin = copy.deepcopy(model)
    model.fill(other.levels)
    for changed, wanted in ((model, other), (twin, some_model("kneser-ney"))):
        stepped, _ = changed.step([5], changed.start(1))
        called, _ = changed(torch.tensor([[5]]), changed.start(1))
        assert torch.equal(torch.from_numpy(stepped), called[:, 0])
        assert torch.equal(changed.log_probs_4, wanted.log_probs_4)
    half, _ = model.float().step([5], model.start(1))
    assert half.dtype == np.float32
