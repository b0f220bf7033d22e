"""Stochastic beams against the law that they sample from; what exhaustive search refuses."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from prefix_tables import Table, enumerated, neural, search_options

from seqgen.errors import UsageError
from seqgen.generation.beam import search
from seqgen.generation.beam_groups import Ending, SearchRules
from seqgen.generation.hypotheses import LengthNorm
from seqgen.generation.text_batch import Row
from seqgen.plugins.searches.exhaustive import exhaustive
from seqgen.plugins.searches.stochastic_beam import condition_on_maxima, gumbel


def test_stochastic_beams_are_a_sample_without_replacement():
    """The first is a draw from the model; the second one from what the first has left."""
    model, draws = Table(3, seed=4), 3000
    texts = {text: math.exp(s) for s, text in enumerated(model, (0,), 2, LengthNorm("none"), 3)}
    assert sum(texts.values()) == pytest.approx(1)
    config = search_options(beams=3, nbest=3, max_tokens=3, stochastic=True, seed=11)
    sources = [Row(i, 0, (0,)) for i in range(draws)]
    first, second = Counter(), Counter()
    for at in range(0, draws, 500):
        for _, found in search(
            model, sources[at : at + 500], SearchRules(config, reasons={2: "eos"})
        ):
            assert len({h.tokens for h in found}) == 3
            assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
            first[found[0].tokens] += 1
            second[found[1].tokens] += 1
    left = {
        text: sum(p * q / (1 - q) for other, q in texts.items() if other != text)
        for text, p in texts.items()
    }
    for counts, expected in [(first, texts), (second, left)]:
        statistic, cells = 0.0, 0
        for text, p in expected.items():
            if p * draws >= 5:
                statistic += (counts[text] - p * draws) ** 2 / (p * draws)
                cells += 1
        # A chi-square variable of n degrees is above n + 5 sqrt(2 n) less than once in 1e5.
        assert statistic < cells + 5 * math.sqrt(2 * cells)


def test_noise_is_a_function_of_the_prefix_and_not_of_the_row():
    model = neural("gru")
    config = search_options(beams=3, nbest=3, max_tokens=6, stochastic=True, seed=5)
    sources = [Row(i, 0, (1 + i % 3,)) for i in range(6)]
    together = dict(search(model, sources, SearchRules(config)))
    for source in reversed(sources):
        ((_, alone),) = search(model, [source], SearchRules(config))
        assert [h.tokens for h in alone] == [h.tokens for h in together[source.prompt]]
    other = dict(search(model, sources, SearchRules(replace(config, seed=6))))
    assert any([h.tokens for h in other[i]] != [h.tokens for h in together[i]] for i in range(6))


@settings(max_examples=examples(50))
@given(st.lists(st.floats(-30, 30), min_size=2, max_size=6), st.floats(-20, 20))
def test_conditioned_gumbels_have_the_wanted_maximum_and_the_order(values, maximum):
    moved = condition_on_maxima(np.array([values]), np.array([[maximum]]))[0]
    assert moved.max() == pytest.approx(maximum)
    order = np.argsort(values, kind="stable")
    assert (np.diff(moved[order]) >= -1e-9).all()


def test_gumbel_noise_has_the_mean_and_deviation_of_its_law():
    noise = gumbel(np.arange(20000, dtype=np.uint64)[:, None], np.array([[7]]))
    assert noise.mean() == pytest.approx(0.5772, abs=0.03)
    assert noise.std() == pytest.approx(math.pi / math.sqrt(6), abs=0.03)


@pytest.mark.parametrize("max_tokens", [10, 10**9])
def test_exhaustive_search_refuses_what_it_cannot_try(max_tokens):
    rules = SearchRules(search_options(max_tokens=max_tokens))
    with pytest.raises(UsageError, match="at most 1,000,000"):
        exhaustive(Table(40), Ending(Row(0, 0, (0,)), rules))
