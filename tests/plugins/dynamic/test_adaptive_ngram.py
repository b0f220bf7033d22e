"""N-gram models that count what they read: beside counting everything again, by hand."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest
from examples import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.plugins.dynamic.adaptive_ngram import AdaptiveNGram, counts_of
from seqgen.text.corpus import Corpus
from seqgen.training.counting import fit

V, START = 9, 0


def markov_text(seed: int, length: int) -> list[int]:
    """Draw tokens 1 to V - 1, each after the two before it."""
    generator = np.random.default_rng(seed)
    table = generator.dirichlet([0.3] * (V - 1), size=(V, V))
    text = [1, 2]
    while len(text) < length:
        text.append(1 + int(generator.choice(V - 1, p=table[text[-2], text[-1]])))
    return text


def counted(order, smoothing="modified-kneser-ney", dtype="float64", **more):
    text = markov_text(0, 1500)
    config = NGramConfig(vocab_size=V, order=order, smoothing=smoothing, **more)
    model = NGram(config).to(getattr(__import__("torch"), dtype)).eval()
    facts = fit(model, Corpus(np.array(text), np.array([len(text)]), start=START), [])
    return model.arrays, facts.discounts, text


def kneser_ney_counts(order, *documents):
    """Count by hand: all n-grams of the highest order, and the words before those of others."""
    raw, before = ([defaultdict(x) for _ in range(order + 1)] for x in (int, set))
    for number, document in enumerate(documents):
        whole = [START, *document]
        for end in range(1, len(whole)):
            for n in range(1, min(order, end + 1) + 1):
                gram = tuple(whole[end - n + 1 : end + 1])
                raw[n][gram] += 1
                if end - n >= 0:
                    before[n][gram].add(whole[end - n])
                elif number == 0 or not before[n][gram]:
                    before[n][gram].add("the beginning of a text")
    lower = [{gram: len(words) for gram, words in each.items()} for each in before]
    return [*lower[:order], raw[order]]


def by_hand(order, counts, discounts, singles, context):
    """Interpolate probabilities (V,) order by order."""
    probs = singles
    for n in range(2, min(order, len(context) + 1) + 1):
        last = tuple(context[-(n - 1) :])
        seen = [counts[n].get((*last, word), 0) for word in range(V)]
        if sum(seen):
            table = [0, *discounts[n - 1]]
            lost = [table[min(count, len(table) - 1)] for count in seen]
            own = np.array(seen) - np.array(lost)
            probs = own / sum(seen) + sum(lost) / sum(seen) * probs
    return probs


@pytest.mark.fast_for("more0-*-1", "*-3", rest="slow")
@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("more", "dtype", "error"),
    [
        ({}, "float64", 1e-12),
        ({}, "float32", 1e-4),
        ({"smoothing": "kneser-ney"}, "float64", 1e-12),
        ({"smoothing": "kneser-ney", "discount": 0.6}, "float64", 1e-12),
    ],
)
def test_it_is_counting_the_training_text_and_all_that_was_read(order, more, dtype, error):
    """Text like that of training, and text of another kind, with contexts that are new."""
    arrays, discounts, text = counted(order, dtype=dtype, **more)
    singles = np.exp(arrays.log_probs[1].astype(np.float64))
    model, read = AdaptiveNGram(arrays, discounts, START), []
    for token in markov_text(0, 20) + markov_text(1, 30):
        log_probs, matched = model.predict()
        counts = kneser_ney_counts(order, text, read)
        wanted = by_hand(order, counts, discounts, singles, [START, *read])
        assert abs(np.exp(log_probs) - wanted).max() < error
        assert np.exp(log_probs.astype(np.float64)).sum() == pytest.approx(1, abs=1e-5)
        past = [START, *read]
        known = (
            n
            for n in range(1, min(order - 1, len(past)) + 1)
            if tuple(past[-n:]) in counts[n] or past[-n:] == [START]
        )
        assert matched == max(known, default=0)
        model.read(token)
        read.append(token)


def test_before_anything_is_read_it_is_the_model():
    arrays, discounts, _ = counted(4)
    state, model = arrays.start(1), AdaptiveNGram(arrays, discounts, START)
    logits, state = arrays.step([START], state)
    np.testing.assert_allclose(model.predict()[0], logits[0], rtol=0, atol=1e-12)
    assert model.predict()[1] == arrays.matched_by(state)[0]


@given(
    st.lists(st.one_of(st.integers(1, 5), st.integers(1, 3000)), min_size=1, max_size=40),
    st.tuples(st.floats(0.05, 0.99), st.floats(0.05, 1.99), st.floats(0.05, 2.99)),
)
@settings(deadline=None, max_examples=examples(200), derandomize=True)
def test_counts_follow_from_probabilities(counts, discounts):
    """Those found have the same probabilities; there may be others that do."""
    counts, table = np.array(counts), np.array([0, *discounts])
    for some, others in itertools.combinations(discounts, 2):
        # Otherwise two counts, less their discounts, are the same, as 2 - 0.05 and 3 - 1.05.
        apart = others - some
        assume(round(apart) == 0 or abs(apart - round(apart)) > 1e-6)
    lost = table[np.minimum(counts, 3)]
    shares, left = (counts - lost) / counts.sum(), lost.sum() / counts.sum()
    found = counts_of(shares, left, table)
    if min(counts) > 64 and len(set(counts)) == 1:
        return
    lost = table[np.minimum(found, 3)]
    np.testing.assert_allclose((found - lost) / found.sum(), shares, rtol=0, atol=1e-9)
    assert lost.sum() / found.sum() == pytest.approx(left, abs=1e-9)


def test_counts_without_discounts_and_of_nothing():
    assert counts_of(np.array([0.25, 0.75]), 0.0, np.array([0.0, 0.0])).tolist() == [1, 3]
    assert counts_of(np.zeros(0), 1.0, np.array([0.0, 0.5])).size == 0
