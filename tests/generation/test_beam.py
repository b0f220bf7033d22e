"""Beam search against enumeration, against tables worked out by hand, and its own rules."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from examples import examples
from helpers_cli import has_plugin
from hypothesis import given, settings
from hypothesis import strategies as st
from prefix_tables import Table, enumerated, neural, search_options

from seqgen.errors import UsageError
from seqgen.generation.beam import search
from seqgen.generation.beam_groups import Ending, SearchRules, likeliest_of_rows
from seqgen.generation.hypotheses import LengthNorm
from seqgen.generation.processors import Forbid, MinTokens, NoRepeatNgram
from seqgen.generation.text_batch import Row


def finished_by(eos):
    """Return the reasons to finish a text: EOS, if there is one."""
    return {} if eos is None else {eos: "eos"}


def one(model, config, processors=(), eos=None, prompt=(0,), ends=None, watch=None):
    rules = SearchRules(config, processors, finished_by(eos), ends)
    ((place, found),) = search(model, [Row(0, 0, prompt)], rules, watch)
    assert place == 0
    return found


NORMS = [("none", 1.0), ("avg", 1.0), ("avg", 0.4), ("gnmt", 1.0), ("avg", -0.5), ("gnmt", 2.5)]


@pytest.mark.parametrize(("kind", "alpha"), NORMS)
@pytest.mark.parametrize("eos", [2, None])
@pytest.mark.parametrize("seed", range(3))
def test_enough_beams_are_exhaustive_search(kind, alpha, eos, seed):
    norm, model = LengthNorm(kind, alpha), Table(3, seed)
    expected = enumerated(model, (0,), eos, norm, 4)[:5]
    config = search_options(beams=3**4, nbest=5, norm=norm, max_tokens=4)
    found = one(model, config, eos=eos)
    assert [h.tokens for h in found] == [text for _, text in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _ in expected])
    if has_plugin("searches"):
        from seqgen.plugins.searches.exhaustive import exhaustive

        ending = Ending(Row(0, 0, (0,)), SearchRules(config, reasons=finished_by(eos)))
        tried = exhaustive(model, ending)
        assert [h.tokens for h in tried] == [text for _, text in expected]
        assert [h.finish_reason for h in tried] == [h.finish_reason for h in found]


def test_lengths_are_weighed_as_documented():
    assert LengthNorm("avg", 1.0)(4) == 4
    assert LengthNorm("avg", 0.5)(4) == 2
    assert LengthNorm("gnmt", 2.0)(7) == 4  # ((5 + 7) / 6)^2
    assert LengthNorm("none", 3.0)(7) == 1


@given(
    logprob=st.floats(-50, -1e-6),
    alpha=st.floats(-2, 2),
    kind=st.sampled_from(["avg", "gnmt", "none"]),
    length=st.integers(1, 9),
    more=st.lists(st.floats(0, 5), min_size=1, max_size=6),
)
def test_no_longer_text_is_better_than_the_bound(logprob, alpha, kind, length, more):
    norm = LengthNorm(kind, alpha)
    longest = length + len(more)
    bound = norm.bound(logprob, length, longest)
    total = logprob
    for n, loss in enumerate(more, 1):
        total -= loss
        assert total / norm(length + n) <= bound + 1e-9


@pytest.mark.parametrize("alpha", [10.5, -200, 400, math.inf, math.nan])
def test_an_alpha_beyond_what_floats_hold_is_refused(alpha):
    with pytest.raises(UsageError, match=r"--alpha must be (from -10 to 10|a number), not"):
        LengthNorm("avg", alpha)


@pytest.mark.parametrize("kind", ["avg", "gnmt"])
@pytest.mark.parametrize("alpha", [-10, 10])
def test_the_largest_alpha_weighs_long_texts(kind, alpha):
    bound = LengthNorm(kind, alpha).bound(-1.0, 1, 1_000_000)
    assert -math.inf < bound < 0


def greedy_trap(prefix):
    """Greedy takes token 1 (0.6), after which all is even; token 2 (0.4) leads to 0.9."""
    after = {(): [0.0, 0.6, 0.4], (1,): [0.34, 0.33, 0.33], (2,): [0.05, 0.9, 0.05]}
    probs = after.get(prefix[1:], [1 / 3] * 3)
    return torch.tensor(probs, dtype=torch.float64).log()


def test_greedy_loses_and_two_beams_find_the_best():
    model = Table(3, logits=greedy_trap)
    greedy = one(model, search_options(beams=1, max_tokens=2))[0]
    assert greedy.tokens == (1, 0)
    assert greedy.logprob == pytest.approx(math.log(0.6 * 0.34))
    best = one(model, search_options(beams=2, max_tokens=2))[0]
    assert best.tokens == (2, 1)
    assert best.logprob == pytest.approx(math.log(0.4 * 0.9))
    assert best.score == pytest.approx(math.log(0.4 * 0.9) / 2)


def test_it_stops_when_nothing_can_be_better_and_not_before():
    """The end at once has 0.3; 0.7 ^ t stays live: a mean can only get better with length."""

    def logits(prefix):
        return torch.tensor([0.3, 0.7], dtype=torch.float64).log()

    seen = []
    for norm, steps, best in [("none", 4, 1), ("avg", 50, 50)]:
        config = search_options(beams=2, norm=LengthNorm(norm), max_tokens=50)
        model = Table(2, logits=logits)
        found = one(model, config, eos=0, watch=lambda *_: seen.append(1), prompt=(1,))
        assert len(found[0].tokens) == best
        # 0.7^4 < 0.3: with no normaliser nothing live is better after the fourth token.
        assert len(seen) == steps
        seen.clear()


def plain_beams(model, prompt, beams, steps, eos, norm):
    """Beam search by reading every hypothesis afresh: no cache, no batch, no early stop."""
    live, finished = [((), 0.0)], []
    for step in range(steps):
        candidates = []
        for text, total in live:
            logits, _ = model(torch.tensor([[*prompt, *text]]), model.start(1), last=1)
            for token, logprob in enumerate(logits[0, 0].log_softmax(-1).tolist()):
                candidates.append(((*text, token), total + logprob))
        candidates.sort(key=lambda c: -c[1])
        ended = [c for c in candidates[:beams] if c[0][-1] == eos]
        live = [c for c in candidates if c[0][-1] != eos][:beams]
        finished += ended + (live if step == steps - 1 else [])
    return sorted(((total / norm(len(text)), text) for text, total in finished), reverse=True)


@pytest.mark.fast_for("6-lstm", "None-transformer")
@pytest.mark.parametrize("kind", ["lstm", "gru", "transformer"])
@pytest.mark.parametrize("eos", [6, None])
def test_caches_and_batches_change_nothing(kind, eos):
    """Past the transformer's window of 10 too."""
    model, norm = neural(kind), LengthNorm("avg", 0.8)
    prompts = [(1, 2, 3), (4,), (5, 5, 5, 1, 2), (2, 3, 1)]
    config = search_options(beams=4, nbest=4, norm=norm, max_tokens=14)
    sources = [Row(i, 0, prompt) for i, prompt in enumerate(prompts)]
    together = dict(search(model, sources, SearchRules(config, reasons=finished_by(eos))))
    assert sorted(together) == [0, 1, 2, 3]
    for place, prompt in enumerate(prompts):
        with torch.no_grad():
            expected = plain_beams(model, prompt, 4, 14, eos, norm)[:4]
        assert [h.tokens for h in together[place]] == [text for _, text in expected]
        assert [h.score for h in together[place]] == pytest.approx([s for s, _ in expected])


def test_filters_hold_and_totals_are_the_models_own():
    model, norm = Table(4, seed=5), LengthNorm("none")

    def allowed(text):
        return text[-1] != 0 and (text[-1] != 3 or len(text) > 3)

    processors = [Forbid((0,)), MinTokens(3, (3,))]
    config = search_options(beams=4**5, nbest=6, norm=norm, max_tokens=5)
    found = one(model, config, processors, eos=3, prompt=(1,))
    expected = enumerated(model, (1,), 3, norm, 5, allowed)[:6]
    assert [h.tokens for h in found] == [text for _, text in expected]
    assert [h.logprob for h in found] == pytest.approx([score for score, _ in expected])


def test_no_ngram_twice():
    found = one(
        Table(4, seed=5), search_options(beams=4, nbest=4, max_tokens=9), [NoRepeatNgram(2)]
    )
    for hypothesis in found:
        pairs = list(itertools.pairwise((0, *hypothesis.tokens)))
        assert len(set(pairs)) == len(pairs)


@given(st.data())
@settings(max_examples=examples(30), deadline=None)
def test_a_cache_whose_rows_move_is_that_of_their_texts(data):
    """Reordered, repeated, in place or not: each row predicts what its tokens, read afresh, do."""
    model = neural("transformer")
    texts = [[1, 2], [3, 4], [5, 6]]
    with torch.no_grad():
        _, state = model(torch.tensor(texts), model.start(3))
        for step in range(data.draw(st.integers(1, 9))):
            size = len(texts)
            fits = st.integers(0, size - 1)
            rows = data.draw(st.lists(fits, min_size=1 if step > 4 else size, max_size=4))
            new = data.draw(st.lists(fits, min_size=len(rows), max_size=len(rows)))
            texts = [[*texts[row], token] for row, token in zip(rows, new, strict=True)]
            logits, state = model(torch.tensor(new)[:, None], state.select(rows))
        for text, found in zip(texts, logits, strict=True):
            expected, _ = model(torch.tensor([text]), model.start(1), last=1)
            assert torch.allclose(found, expected[0])


def test_groups():
    model = Table(6, seed=9)
    plain = one(model, search_options(beams=2, nbest=2, max_tokens=6))
    same = one(model, search_options(beams=6, nbest=6, groups=3, diversity=0.0, max_tokens=6))
    assert [h.tokens for h in same] == [h.tokens for h in plain]  # three times the same search
    apart = one(model, search_options(beams=6, nbest=6, groups=3, diversity=100.0, max_tokens=6))
    assert {h.tokens for h in plain} <= {h.tokens for h in apart}  # the first group is alone
    assert len({h.tokens for h in apart}) == 6
    firsts = Counter(h.tokens[0] for h in apart)
    assert len(firsts) >= 3


def test_stop_strings_end_hypotheses():
    """Texts that hold 1 1 are finished there, and never go on."""
    model = Table(3, seed=2)

    def ends(_, tokens):
        return (1, 1) in itertools.pairwise(tokens)

    config = search_options(beams=3**4, nbest=81, norm=LengthNorm("none"), max_tokens=4)
    found = one(model, config, ends=ends)
    for hypothesis in found:
        assert ends(None, hypothesis.tokens) == (hypothesis.finish_reason == "stop")
        assert not ends(None, hypothesis.tokens[:-1])
    total = sum(math.exp(h.logprob) for h in found)
    assert total == pytest.approx(1)  # every text is there, once


def test_a_beam_of_stops_looks_further_for_live_ones():
    def logits(prefix):
        return torch.tensor([0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0], dtype=torch.float64)

    config = search_options(beams=2, nbest=2, max_tokens=2)
    found = one(Table(8, logits=logits), config, ends=lambda _, tokens: tokens[-1] < 5)
    assert all(h.finish_reason == "stop" for h in found)
    assert found[0].tokens == (0,)


@given(
    seed=st.integers(0, 999),
    rows=st.integers(1, 4),
    vocab_size=st.integers(1, 90),
    values=st.integers(1, 60),
    data=st.data(),
)
@settings(deadline=None, max_examples=examples(60), derandomize=True)
def test_the_likeliest_of_a_row_are_those_that_sorting_gives(seed, rows, vocab_size, values, data):
    width = data.draw(st.integers(1, vocab_size))
    rank = np.random.default_rng(seed).integers(0, values, (rows, vocab_size)).astype(np.float32)
    rank[rank == 0] = -np.inf
    expected = [
        (row, column)
        for row, numbers in enumerate(rank.tolist())
        for column, number in enumerate(numbers)
        if number > -math.inf and number >= sorted(numbers)[-width]
    ]
    assert list(zip(*(x.tolist() for x in likeliest_of_rows(rank, width)), strict=True)) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"beams": 0},
        {"nbest": 6},
        {"nbest": 0},
        {"groups": 2},
        {"groups": 0},
        {"max_tokens": -1},
        {"max_tokens": 10**31},
        {"diversity": -1.0},
        {"diversity": math.inf},
        {"stochastic": True, "groups": 5},
    ],
)
def test_what_is_refused(wrong):
    with pytest.raises(UsageError):
        search_options(**wrong)


def test_no_tokens_are_an_empty_text():
    (found,) = one(Table(3), search_options(max_tokens=0))
    assert found.tokens == ()
    assert found.finish_reason == "length"
