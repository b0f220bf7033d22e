import math
import time
from itertools import accumulate

import numpy as np
import pytest
from helpers_io import cut, places, quick
from hypothesis import assume, example, given
from hypothesis import strategies as st

from seqgen.errors import UsageError
from seqgen.generation.continuation import Continuation, StopStrings
from seqgen.generation.draw import BLOCK, CounterDraw, greedy
from seqgen.generation.processors import Forbid, Temperature, TopK, TopP, normalise
from seqgen.hashing import uniforms
from seqgen.text.tokenizers import KINDS

# Weights with many ties and zeros; at least one is possible.
weights = st.lists(
    st.one_of(st.sampled_from([0, 0, 1, 1, 2, 4]), st.integers(0, 1000)), min_size=1, max_size=9
).filter(any)


def log_probs_of(counts):
    with np.errstate(divide="ignore"):
        return normalise(np.log([counts], dtype=np.float64))


def probs(log_probs):
    assert not np.isnan(log_probs).any()
    return np.exp(log_probs[0]).tolist()


def renormalised(kept):
    return [p / sum(kept) for p in kept]


def by_probability(values):
    """Ids from the most probable on; of equals, the smaller first."""
    return sorted(range(len(values)), key=lambda i: (-values[i], i))


@quick
@given(counts=weights, k=st.integers(1, 12))
def test_top_k(counts, k):
    kept = set(by_probability(counts)[:k])
    expected = renormalised([c if i in kept else 0 for i, c in enumerate(counts)])
    assert probs(TopK(k)([[]], log_probs_of(counts))) == pytest.approx(expected)


@quick
@given(counts=weights, p=st.floats(0, 1))
@example(counts=[1, 1, 2], p=0.0)
@example(counts=[1, 1, 2], p=0.5)
@example(counts=[1, 1, 1, 1], p=0.75)
@example(counts=[1, 1, 2], p=1.0)
@example(counts=[0, 1, 0], p=1.0)
def test_top_p(counts, p):
    total, kept, before = sum(counts), set(), 0
    for i in by_probability(counts):
        # Where a mass is p but for rounding, either answer is right.
        exact = total in (1, 2, 4, 8, 16)
        assume(exact or before == 0 or abs(before / total - p) > 1e-9)
        if not kept or before / total < p:
            kept.add(i)
        before += counts[i]
    expected = renormalised([c if i in kept else 0 for i, c in enumerate(counts)])
    filtered = TopP(p)([[]], log_probs_of(counts))
    assert probs(filtered) == pytest.approx(expected)
    if p == 1:
        assert np.array_equal(filtered, log_probs_of(counts))


@quick
@given(counts=weights, t=st.floats(0.05, 20))
def test_temperature(counts, t):
    powers = [(c / max(counts)) ** (1 / t) if c else 0 for c in counts]
    expected = renormalised(powers)
    assert probs(Temperature(t)([[]], log_probs_of(counts))) == pytest.approx(expected, abs=1e-12)


@quick
@given(counts=weights)
def test_temperature_zero_is_the_argmax(counts):
    best = by_probability(counts)[0]
    expected = [float(i == best) for i in range(len(counts))]
    assert probs(Temperature(0)([[]], log_probs_of(counts))) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("t", [5e-324, 1e-300, 1e-46, 1e-40, 1e-30, 1e30, 1e39, 1e300])
def test_any_temperature_leaves_a_distribution(t, dtype):
    log_probs = normalise(np.array([[-math.inf, -0.1, -3.0, -0.1]], dtype=dtype))
    expected = [0, 0.5, 0, 0.5] if t < 1 else [0, 1 / 3, 1 / 3, 1 / 3]
    assert probs(Temperature(t)([[]], log_probs)) == pytest.approx(expected, abs=1e-5)


@quick
@given(counts=weights, data=st.data())
def test_forbid(counts, data):
    ids = data.draw(st.lists(st.integers(0, len(counts) - 1), unique=True))
    assume(len(ids) < len(counts))
    kept = [0 if i in ids else c for i, c in enumerate(counts)]
    if not any(kept):  # only what is forbidden was possible: all else is alike
        kept = [int(i not in ids) for i in range(len(counts))]
    assert probs(Forbid(tuple(ids))([[]], log_probs_of(counts))) == pytest.approx(
        renormalised(kept)
    )


processors = st.one_of(
    st.floats(0, 1e6).map(Temperature), st.integers(1, 9).map(TopK), st.floats(0, 1).map(TopP)
)


@quick
@given(
    rows=st.integers(1, 4).flatmap(
        lambda v: st.lists(
            st.lists(st.floats(-700, 0), min_size=v, max_size=v), min_size=1, max_size=4
        )
    ),
    chain=st.lists(processors, max_size=4),
    single=st.booleans(),
)
def test_any_chain_leaves_something_and_rows_are_independent(rows, chain, single):
    log_probs = normalise(np.array(rows, dtype=np.float32 if single else np.float64))
    before = log_probs.copy()
    out = log_probs
    for processor in chain:
        out = processor([[]] * len(rows), out)
    assert np.array_equal(log_probs, before)  # pure
    assert out.dtype == log_probs.dtype
    assert np.exp(out).sum(-1) == pytest.approx(np.ones(len(rows)), abs=1e-5)
    for i in range(len(rows)):
        alone = log_probs[i : i + 1]
        for processor in chain:
            alone = processor([[]], alone)
        assert np.array_equal(alone[0], out[i])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Temperature(-0.1),
        lambda: Temperature(math.nan),
        lambda: Temperature(math.inf),
        lambda: TopK(0),
        lambda: TopP(-0.1),
        lambda: TopP(1.1),
        lambda: TopP(math.nan),
    ],
)
def test_settings_without_meaning(wrong):
    with pytest.raises(UsageError, match="--"):
        wrong()


# ---- draws ----


@quick
@given(table=st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1))
def test_greedy_takes_the_smallest_id_of_equals(table):
    log_probs = np.array(table, dtype=np.float32)
    expected = [row.index(max(row)) for row in table]
    assert greedy([(i, 0) for i in range(len(table))], 0, log_probs) == expected


@quick
@given(counts=weights, seed=st.integers(0, 1 << 63), row=st.integers(0, 99), t=st.integers(0, 99))
def test_a_draw_inverts_the_cumulated_distribution(counts, seed, row, t):
    u = float(uniforms(seed, row, 7, t))
    ends, target = list(accumulate(counts)), u * sum(counts)
    assume(all(abs(end - target) > 1e-9 * sum(counts) for end in ends))
    token = next(i for i, end in enumerate(ends) if end > target)
    log_probs = log_probs_of(counts)
    assert CounterDraw(seed)([(row, 7)], t, log_probs) == [token]
    # The company it is drawn in changes nothing.
    beside = normalise(np.random.default_rng(0).random((3, len(counts))))
    rows = [(0, 0), (row, 7), (row, 8), (5, 5)]
    mixed = np.concatenate([beside[:1], log_probs, beside[1:]])
    assert CounterDraw(seed)(rows, t, mixed)[1] == token


class Fixed:
    """Stands in for the hash."""

    def __init__(self, u):
        self.u = u

    def __call__(self, seed, prompts, samples, step):
        return np.full(np.shape(prompts), self.u)


@pytest.mark.parametrize("block", [1, 2, 4, 5, 512])
@pytest.mark.parametrize(
    ("u", "token"),
    [(0.0, 1), (0.24, 1), (0.25, 3), (0.49, 3), (0.5, 4), (1 - 2**-53, 4)],
)
def test_edges_of_a_draw(monkeypatch, u, token, block):
    monkeypatch.setattr("seqgen.generation.draw.uniforms", Fixed(u))
    monkeypatch.setattr("seqgen.generation.draw.BLOCK", block)
    with np.errstate(divide="ignore"):
        log_probs = np.log([[0, 0.25, 0, 0.25, 0.5, 0]])
    assert CounterDraw(0)([(0, 0)], 0, log_probs) == [token]


def test_draws_from_a_large_vocabulary_invert_the_cumulated_distribution():
    size = 3 * BLOCK + 7
    chances = np.random.default_rng(2).random((40, size)) ** 9
    chances[:, -9:] = 0
    with np.errstate(divide="ignore"):
        log_probs = normalise(np.log(chances))
    drawn = CounterDraw(4)([(row, 1) for row in range(40)], 2, log_probs)
    for row, token in enumerate(drawn):
        ends = list(accumulate(np.exp(log_probs[row]).tolist()))
        u = float(uniforms(4, row, 1, 2))
        assert min(abs(end - u * ends[-1]) for end in ends) > 1e-12
        assert token == next(i for i, end in enumerate(ends) if end > u * ends[-1])


def test_draws_have_the_given_frequencies():
    chances = np.array([0.5, 0.0, 0.25, 0.15, 0.1])
    with np.errstate(divide="ignore"):
        log_probs = np.log(chances)
    n = 20_000
    draw = CounterDraw(3)
    by_sample = draw([(0, j) for j in range(n)], 0, np.tile(log_probs, (n, 1)))
    by_prompt = draw([(i, 0) for i in range(n)], 5, np.tile(log_probs, (n, 1)))
    by_step = [draw([(1, 1)], t, log_probs[None])[0] for t in range(2000)]
    for tokens in (by_sample, by_prompt, by_step):
        counts = np.bincount(tokens, minlength=5)
        expected = chances * len(tokens)
        assert counts[1] == 0
        possible = expected > 0
        chi2 = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
        assert chi2 < 27.9  # 3 degrees of freedom: once in 260,000


# ---- stop strings ----


def first_stopped(text, stops):
    """The text before the stop that is complete first; of these, the longest."""
    for end in range(len(text) + 1):
        begins = [end - len(s) for s in stops if text[:end].endswith(s)]
        if begins:
            return text[: min(begins)], True
    return text, False


small = st.text(st.sampled_from("ab\n"), max_size=20)
stops_of = st.lists(st.text(st.sampled_from("ab\n"), min_size=1, max_size=4), max_size=3)


@quick
@given(text=small, stop=st.text(st.sampled_from("ab"), min_size=1, max_size=4), at=places)
@example(text="aabaab", stop="aab", at=[1, 2])
def test_one_stop_is_where_split_finds_it(text, stop, at):
    shown, watch = "", StopStrings([stop])
    for piece in cut(text, at):
        shown += watch.push(piece)
        assert text.split(stop)[0].startswith(shown)  # nothing is ever taken back
        if watch.matched:
            break
    shown += watch.flush()
    assert shown == text.split(stop)[0]
    assert watch.matched == (stop in text)


@quick
@given(text=small, stops=stops_of, at=places)
@example(text="abc", stops=["abc", "b"], at=[])
@example(text="abc", stops=["abc", "b"], at=[1, 2])
@example(text="xaab", stops=["ab", "aab"], at=[2])
def test_several_stops_do_not_depend_on_the_pieces(text, stops, at):
    shown, watch = "", StopStrings(stops)
    for piece in cut(text, at):
        shown += watch.push(piece)
        if watch.matched:
            break
    shown += watch.flush()
    assert (shown, watch.matched) == first_stopped(text, stops)


def test_a_character_takes_as_long_for_long_stops_as_for_short_ones():
    """Not even if text begins one of them again and again, while another is nowhere."""

    def seconds(size):
        watch, found = StopStrings(["a" * size + "b", "b" * 9 + "a" * size]), []
        for _ in range(20):
            begun = time.perf_counter()
            for _ in range(200):
                assert watch.push("a") in ("", "a")
            found.append(time.perf_counter() - begun)
        return sorted(found)[10]

    assert seconds(4000) < 20 * seconds(20)


@quick
@given(text=small, stops=stops_of)
def test_nothing_is_held_longer_than_needed(text, stops):
    """What is held back is the beginning of a stop, so it could still become one."""
    watch = StopStrings(stops)
    shown = "".join(map(watch.push, text))
    if not watch.matched:
        held = text[len(shown) :]
        assert held == "" or any(s.startswith(held) for s in stops)


# ---- a text in the making ----


def written(tokenizer, ids, ends=(), **options):
    settings = {"stops": (), "max_tokens": 100} | options
    text = Continuation(tokenizer.decoder(), reasons=dict.fromkeys(ends, "eos"), **settings)
    pieces = []
    for number, token in enumerate(ids):
        if text.finish_reason:
            break
        pieces.append(text.push(token, -float(number + 1)))
    assert "".join(pieces) == text.text
    return text, pieces


def facts(text):
    return text.text, text.tokens, text.logprob, text.finish_reason


CHARS = KINDS["char"]("ab \n")
BYTES = KINDS["byte"]()


def ids(tokenizer, text):
    return tokenizer.encode(text).tolist()


def test_an_end_counts_and_is_not_text():
    sequence = [*ids(CHARS, "ab"), CHARS.eos_id, *ids(CHARS, "b")]
    text, _ = written(CHARS, sequence, ends=(CHARS.eos_id,))
    assert facts(text) == ("ab", 3, -6.0, "eos")
    space = ids(CHARS, " ")[0]
    for ends in ((space, CHARS.eos_id), [CHARS.eos_id, space]):
        assert facts(written(CHARS, sequence, ends=ends)[0]) == ("ab", 3, -6.0, "eos")
        assert facts(written(CHARS, ids(CHARS, "ab a"), ends=ends)[0])[:2] == ("ab", 3)


def test_a_length_is_that_of_tokens():
    assert facts(written(CHARS, ids(CHARS, "abab"), max_tokens=3)[0]) == ("aba", 3, -6.0, "length")
    assert facts(written(CHARS, ids(CHARS, "ab"), max_tokens=0)[0]) == ("", 0, 0.0, "length")
    assert facts(written(CHARS, ids(CHARS, "ab"))[0]) == ("ab", 2, -3.0, None)


def test_a_stop_that_straddles_tokens_is_trimmed_and_counted():
    text, pieces = written(CHARS, ids(CHARS, "aab a"), stops=["b "])
    assert facts(text) == ("aa", 4, -10.0, "stop")
    assert pieces == ["a", "a", "", ""]


def test_a_held_back_beginning_comes_out_at_the_end():
    text, pieces = written(CHARS, ids(CHARS, "aab"), stops=["b a"], max_tokens=3)
    assert facts(text) == ("aab", 3, -6.0, "length")
    assert pieces == ["a", "a", "b"]
    text, pieces = written(CHARS, [*ids(CHARS, "b "), 2], stops=["b a"], ends=(2,))
    assert facts(text) == ("b ", 3, -6.0, "eos")
    assert pieces == ["", "", "b "]


def test_a_stop_at_the_last_token_is_a_stop():
    assert facts(written(CHARS, ids(CHARS, "ab"), stops=["b"], max_tokens=2)[0])[3] == "stop"


def test_a_stop_inside_one_token():
    words = KINDS["word"].train(["hello world"])
    text, _ = written(words, ids(words, "hello world"), stops=["o w"])
    assert facts(text) == ("hell", 2, -3.0, "stop")


def test_an_incomplete_character_is_held_back_then_shown_as_a_stand_in():
    text, pieces = written(BYTES, ids(BYTES, "\u00e9x\u00e9"), max_tokens=4)
    assert pieces == ["", "\u00e9", "x", "\ufffd"]
    assert text.finish_reason == "length"
    text, pieces = written(BYTES, [*ids(BYTES, "\u00e9")[:1], 2], ends=(2,))
    assert (pieces, text.finish_reason) == (["", "\ufffd"], "eos")
    text, _ = written(BYTES, ids(BYTES, "a\u00e9")[:2], stops=["\ufffd"], max_tokens=2)
    assert facts(text)[::3] == ("a", "stop")


@quick
@given(
    text=st.text(st.sampled_from("ab\n\u00e9\U0001f600"), max_size=12),
    stops=st.lists(st.text(st.sampled_from("ab\n\u00e9"), min_size=1, max_size=3), max_size=2),
    limit=st.integers(0, 20),
    kind=st.sampled_from(["char", "byte", "word"]),
)
def test_any_text_in_the_making(text, stops, limit, kind):
    tokenizer = KINDS[kind].train([text])
    sequence = [*ids(tokenizer, text), tokenizer.eos_id]
    made, _ = written(tokenizer, sequence, stops=stops, max_tokens=limit, ends=(tokenizer.eos_id,))
    for count in range(len(sequence) + 1):
        so_far = tokenizer.decode(sequence[:count])
        whole = so_far.removesuffix("\ufffd") if count < min(limit, len(sequence)) else so_far
        shown, found = first_stopped(whole, stops)
        if found or count == limit or count == len(sequence):
            break
    ended = sequence[count - 1 : count] == [tokenizer.eos_id]
    reason = "stop" if found else "eos" if ended else "length"
    assert (made.text, made.tokens, made.finish_reason) == (shown, count, reason)
