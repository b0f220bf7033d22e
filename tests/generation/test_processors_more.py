"""Filters beyond temperature, top-k and top-p, each against its definition by brute force."""

import itertools
import math
import random
import time
from collections import Counter

import numpy as np
import pytest
from helpers_io import quick
from hypothesis import given
from hypothesis import strategies as st
from known_models import fake

from seqgen.errors import UsageError
from seqgen.generation.processors import (
    Ban,
    Force,
    History,
    MinP,
    MinTokens,
    NoRepeatNgram,
    PresenceAndFrequency,
    RepetitionPenalty,
    TopK,
    TopP,
    Typical,
    likeliest,
    normalise,
)
from seqgen.generation.sample import Writer
from seqgen.settings.generation import SampleOptions
from seqgen.settings.options import is_group

V = 5
rows = st.lists(st.floats(-8, 0), min_size=V, max_size=V).map(
    lambda values: normalise(np.array([values]))
)
histories = st.builds(
    lambda tokens, prompt: History(tokens, min(prompt, len(tokens))),
    st.lists(st.integers(0, V - 1), max_size=9),
    st.integers(0, 9),
)


def kept(log_probs):
    return {v for v in range(V) if log_probs[0, v] > -math.inf}


def renormalised(log_probs, keep):
    mass = sum(math.exp(log_probs[0, v]) for v in keep)
    return [math.exp(log_probs[0, v]) / mass if v in keep else 0.0 for v in range(V)]


def argmax(log_probs):
    values = log_probs[0].tolist()
    return values.index(max(values))


@quick
@given(rows, st.floats(0, 1))
def test_min_p(log_probs, p):
    probs = np.exp(log_probs)[0].tolist()
    keep = {v for v in range(V) if probs[v] >= p * max(probs)}
    found = MinP(p)([[]], log_probs)
    assert kept(found) == keep
    assert np.exp(found)[0].tolist() == pytest.approx(renormalised(log_probs, keep))


@quick
@given(rows, st.floats(0.01, 1))
def test_typical_keeps_what_is_nearest_to_the_entropy(log_probs, mass):
    probs = np.exp(log_probs)[0].tolist()
    entropy = -sum(p * math.log(p) for p in probs)
    order = sorted(range(V), key=lambda v: (round(abs(-math.log(probs[v]) - entropy), 12), v))
    keep, before = set(), 0.0
    for v in order:
        if before >= mass - 1e-12:
            break
        keep.add(v)
        before += probs[v]
    found = kept(Typical(mass)([[]], log_probs))
    # Equal distances and masses that are reached exactly may fall either way by rounding.
    distances = sorted(abs(-math.log(p) - entropy) for p in probs)
    apart = all(b - a > 1e-9 for a, b in itertools.pairwise(distances))
    if apart and abs(before - mass) > 1e-9:
        assert found == keep


def test_typical_by_hand():
    """Of 0.5 0.3 0.1 0.1 the entropy is 1.168: surprisals 0.693 1.204 2.303 2.303."""
    log_probs = np.log([[0.5, 0.3, 0.1, 0.1]])
    assert np.exp(Typical(0.2)([[]], log_probs))[0].tolist() == pytest.approx([0, 1, 0, 0])
    assert np.exp(Typical(0.5)([[]], log_probs))[0].tolist() == pytest.approx([0.625, 0.375, 0, 0])
    assert np.exp(Typical(0.85)([[]], log_probs))[0, 2].item() == pytest.approx(1 / 9)


@quick
@given(rows, histories, st.floats(0.2, 5))
def test_repetition_penalty(log_probs, history, theta):
    found = RepetitionPenalty(theta)([history], log_probs)
    weights = [
        math.exp(x * (theta if v in history else 1)) for v, x in enumerate(log_probs[0].tolist())
    ]
    assert np.exp(found)[0].tolist() == pytest.approx([w / sum(weights) for w in weights])


@quick
@given(rows, histories, st.floats(-3, 3), st.floats(-3, 3))
def test_presence_and_frequency_count_what_was_written_only(log_probs, history, presence, freq):
    times = Counter(history[history.prompt :])
    weights = [
        math.exp(x - (presence if times[v] else 0) - freq * times[v])
        for v, x in enumerate(log_probs[0].tolist())
    ]
    found = PresenceAndFrequency(presence, freq)([history], log_probs)
    assert np.exp(found)[0].tolist() == pytest.approx([w / sum(weights) for w in weights])


@quick
@given(rows, histories, st.integers(1, 4))
def test_no_repeat_ngram(log_probs, history, n):
    def ngrams(tokens):
        return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]

    before = set(ngrams(history))
    keep = {
        v for v in range(V) if len(history) + 1 < n or ngrams([*history, v])[-1] not in before
    } or {argmax(log_probs)}
    found = NoRepeatNgram(n)([history], log_probs)
    assert kept(found) == keep
    assert np.exp(found)[0].tolist() == pytest.approx(renormalised(log_probs, keep))


OF_HISTORY = {
    "no-repeat": NoRepeatNgram(3),
    "no-repeat-any": NoRepeatNgram(1),
    "repetition": RepetitionPenalty(1.5),
    "presence": PresenceAndFrequency(0.5, 0.2),
    "ban": Ban(tuple((0, *range(1, n)) for n in range(2, V))),
}


@pytest.mark.parametrize("name", OF_HISTORY)
@quick
@given(rows, histories, st.lists(st.integers(0, V - 1), max_size=12))
def test_a_row_that_grows_is_filtered_as_if_it_were_read_anew(name, log_probs, history, more):
    processor, beside = OF_HISTORY[name], History([*history], history.prompt)
    for token in [None, *more]:
        if token is not None:
            history.append(token)
        anew = processor([History(list(history), history.prompt)], log_probs)
        both = processor([history, beside], np.concatenate([log_probs, log_probs]))
        np.testing.assert_array_equal(both[:1], anew)


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_repeated_ngrams_of_a_long_row(n):
    draw = random.Random(n)
    for size in (2, 300):
        tokens = draw.choices(range(size), k=1500)
        row, ends = History(tokens[:1000], 1000), {}
        for at in range(n - 1, len(tokens)):
            ends.setdefault(tuple(tokens[at - n + 1 : at]), []).append((at, tokens[at]))
        for at in range(1000, len(tokens)):
            before = ends.get(tuple(tokens[at - n + 1 : at]), [])
            assert NoRepeatNgram(n).repeated(row) == {
                token for place, token in before if place < at
            }
            row.append(tokens[at])


@pytest.mark.parametrize("name", OF_HISTORY)
@pytest.mark.parametrize("tokens", ["drawn", "equal"])
def test_a_token_takes_as_long_after_many_as_after_few(name, tokens):
    """A row of 100,000 tokens is not read at every step."""

    def seconds(length):
        drawn = np.random.default_rng(1).integers(0, V, length).tolist()
        history = History(drawn if tokens == "drawn" else [1] * length, length // 2)
        log_probs, found = np.log(np.full((1, V), 1 / V)), []
        OF_HISTORY[name]([history], log_probs)
        for _ in range(30):
            history.append(2)
            begun = time.perf_counter()
            OF_HISTORY[name]([history], log_probs)
            found.append(time.perf_counter() - begun)
        return sorted(found)[10]

    assert seconds(100_000) < 10 * seconds(100)


@quick
@given(
    rows,
    histories,
    st.lists(
        st.lists(st.integers(0, V - 1), min_size=1, max_size=3).map(tuple), min_size=1, max_size=6
    ),
)
def test_ban(log_probs, history, sequences):
    def ends_in_one(tokens):
        return any(tuple(tokens[-len(s) :]) == s for s in sequences)

    keep = {v for v in range(V) if not ends_in_one([*history, v])} or {argmax(log_probs)}
    found = Ban(tuple(sequences))([history], log_probs)
    assert kept(found) == keep
    assert np.exp(found)[0].tolist() == pytest.approx(renormalised(log_probs, keep))


@quick
@given(rows, histories, st.integers(0, 6))
def test_min_tokens(log_probs, history, tokens):
    found = kept(MinTokens(tokens, (2,))([history], log_probs))
    written = len(history) - history.prompt
    assert found == set(range(V)) - ({2} if written < tokens else set())
    found = kept(MinTokens(tokens, (2, 1))([history], log_probs))
    assert found == set(range(V)) - ({1, 2} if written < tokens else set())


@quick
@given(rows, histories, st.lists(st.integers(0, V - 1), max_size=4))
def test_force(log_probs, history, ids):
    found = Force(tuple(ids))([history], log_probs)
    written = len(history) - history.prompt
    if written < len(ids):
        assert kept(found) == {ids[written]}
        assert found[0, ids[written]] == 0
    else:
        assert np.array_equal(found, log_probs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("penalty", [RepetitionPenalty(1e-3), RepetitionPenalty(1e3)])
@pytest.mark.parametrize("times", [0, 1, 10_000])
def test_the_largest_penalties_leave_a_distribution(penalty, times, dtype):
    log_probs = normalise(np.array([[0, -5, -1e30, -math.inf]], dtype=dtype))
    history = History([0, 3] * times)
    both = PresenceAndFrequency(1e3, 1e3), PresenceAndFrequency(-1e3, -1e3)
    with np.errstate(over="raise", invalid="raise"):
        for processor in (penalty, *both):
            found = processor([history], log_probs)
            assert np.exp(found).sum() == pytest.approx(1)
            assert found[0, 3] == -math.inf


def test_rows_do_not_mix():
    log_probs = np.log(np.full((2, 3), 1 / 3))
    found = NoRepeatNgram(1)([[0], [1, 2]], log_probs)
    assert np.exp(found).tolist() == [[0, pytest.approx(0.5), pytest.approx(0.5)], [1, 0, 0]]


@pytest.mark.parametrize(
    ("processor", "arguments"),
    [
        (MinP, (1.5,)),
        (MinP, (-0.1,)),
        (Typical, (0.0,)),
        (RepetitionPenalty, (0.0,)),
        (RepetitionPenalty, (1e-46,)),
        (RepetitionPenalty, (1e39,)),
        (RepetitionPenalty, (math.inf,)),
        (PresenceAndFrequency, (math.nan, 0.0)),
        (PresenceAndFrequency, (1e39, 0.0)),
        (PresenceAndFrequency, (0.0, -1e38)),
        (NoRepeatNgram, (0,)),
        (MinTokens, (-1, 2)),
        (Ban, (((),),)),
    ],
)
def test_what_is_refused(processor, arguments):
    with pytest.raises(UsageError):
        processor(*arguments)


PENALTIES = "repetition, presence and frequency penalties"
# What help calls the filters that have no option of their name.
IN_HELP = {
    "forbidden": "tokens that are never written",
    "repetition-penalty": PENALTIES,
    "presence-frequency": PENALTIES,
}


def test_help_names_the_filters_in_the_order_they_apply_in():
    from seqgen.cli.sample import sample

    penalties = {"repetition_penalty": 2.0, "presence_penalty": 1.0, "no_repeat_ngram": 3}
    cuts = {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "typical": 0.9}
    begin = {"ban": ("c",), "min_tokens": 1, "force": "ab"}
    options = SampleOptions.of(seed=1, **begin, **penalties, **cuts)
    applied = [one.name for one in Writer(fake(documents="line"), options).processors]
    assert len(applied) == 2 + len(begin) + len(penalties) + len(cuts) - 1
    added = [kind for kind in SampleOptions.types()["added"].types().values() if is_group(kind)]
    of_plugins = [kind.constraint_flag for kind in added] + [kind.filter_flag for kind in added]
    names = [IN_HELP.get(name, f"--{name}") for name in applied]
    at = names.index("--force") + 1
    names[at:at] = filter(None, of_plugins)
    text = " ".join(sample.__doc__.split())
    places = [text.index(name) for name in names]
    assert places == sorted(places) and len(set(places)) == len(names) - 1


@pytest.mark.parametrize("p", [0.0, 0.1, 0.9, 0.99, 0.999999])
@pytest.mark.parametrize("law", ["flat", "peaked", "ties", "impossible"])
def test_a_large_vocabulary_keeps_what_sorting_all_of_it_would(law, p):
    draws = np.random.default_rng(3).normal(0, 0.01 if law == "flat" else 4, (3, 9000))
    draws = np.round(draws) if law == "ties" else draws
    draws[:, ::2] = -np.inf if law == "impossible" else draws[:, ::2]
    log_probs = normalise(draws.astype(np.float32))
    kept = TopP(p)((), log_probs) > -np.inf
    for k in (1, 40, 8999):
        of_k = TopK(k)((), log_probs) > -np.inf
        for row, left in zip(log_probs, of_k, strict=True):
            assert set(np.flatnonzero(left)) == {v for v in likeliest(row)[:k] if row[v] > -np.inf}
    for row, left in zip(log_probs, kept, strict=True):
        order = sorted(range(9000), key=lambda v: (-row[v], v))
        mass = np.exp(row[order], dtype=np.float64)
        before = mass.cumsum() - mass
        wanted = {order[0]} | {order[place] for place in np.flatnonzero(before < p)}
        assert set(np.flatnonzero(left)) == {v for v in wanted if row[v] > -np.inf}
