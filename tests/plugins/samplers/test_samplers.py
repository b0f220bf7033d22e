"""DRY, XTC and top-n-sigma: against their definitions by brute force, and llama.cpp."""

import itertools
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from helpers_cli import needs, refusal
from hypothesis import given
from hypothesis import strategies as st
from known_models import ALPHABET, fake, real

from seqgen.cli import run
from seqgen.generation.processors import History, normalise
from seqgen.generation.sample import Writer, sample
from seqgen.generation.text_batch import prefill
from seqgen.plugins.samplers.filters import Dry, TopNSigma, Xtc
from seqgen.settings.generation import SampleOptions
from seqgen.store.loading import load
from seqgen.text.tokenizers.char import CharTokenizer

V = 6
rows = st.lists(st.floats(-8, 0), min_size=V, max_size=V).map(
    lambda values: normalise(np.array([values]))
)


# ---- DRY ----

LETTERS = CharTokenizer("abcd\n:")
DRY = {"multiplier": 0.8, "base": 1.75, "allowed_length": 2, "breakers": ("\n",)}


def ids(text):
    return LETTERS.encode(text).tolist()


def penalty_by_definition(text, letter, multiplier, base, allowed_length, breakers):
    """Try every length, and every earlier place."""
    if any(breaker in letter for breaker in breakers):
        return 0.0
    longest = 0
    for length in range(allowed_length, len(text)):
        places = range(len(text) - length + 1, len(text) + 1)
        if any(text[:place].endswith(breakers) for place in places):
            break  # a breaker ends within it
        longest = length if text[-length:] + letter in text else longest
    return multiplier * base ** (longest - allowed_length) if longest else 0.0


@given(
    st.text("ab\n:", max_size=14),
    st.integers(1, 4),
    st.sampled_from([("\n",), (":",), ("a:",), ("\n", "ab"), ("b\na",)]),
)
def test_dry_penalises_by_the_longest_repetition(text, allowed_length, breakers):
    about = {**DRY, "allowed_length": allowed_length, "breakers": breakers}
    dry, size = Dry(LETTERS, **about), LETTERS.vocab_size
    log_probs = np.full((1, size), -math.log(size))
    (found,) = dry([History(ids(text), len(text) // 2)], log_probs)
    wanted = log_probs[0].copy()
    for letter in LETTERS.alphabet:
        wanted[ids(letter)] -= penalty_by_definition(text, letter, **about)
    assert found.tolist() == pytest.approx(normalise(wanted[None])[0].tolist())
    grows = History(ids(text[:3]), 1)
    for token in ids(text[3:]):
        dry([grows], log_probs)
        grows.append(token)
    assert dry([grows], log_probs)[0].tolist() == found.tolist()


def test_dry_by_hand():
    def penalised(text, **about):
        dry = Dry(LETTERS, **{**DRY, **about})
        lengths = dry.lengths(ids(text), LETTERS.vocab_size)
        return {letter: n for letter in LETTERS.alphabet if (n := lengths[ids(letter)[0]])}

    assert penalised("abcdab") == {"c": 2}
    assert penalised("abca") == {}  # one token alone is no repetition
    assert penalised("abca", allowed_length=1) == {"b": 1}
    assert penalised("abcbdbcb") == {"d": 3}  # "bcb" before "d", not only "b" before "c"
    assert penalised("abc\nab") == {"c": 2}
    assert penalised("b\nac\nad\na") == {}  # a newline ends the repetition
    assert penalised("aaaa") == {"a": 3}
    assert penalised("aaaa", base=1.0) == {"a": 2}  # longer ones weigh the same


def test_a_long_repetition_overflows_nothing():
    dry = Dry(LETTERS, 1000.0, 1000.0, 1, ())
    (found,) = dry([ids("a" * 500)], np.full((1, LETTERS.vocab_size), -1.0, np.float32))
    assert np.isfinite(np.delete(found, ids("a"))).all() and found[ids("a")[0]] < -1e20


def test_dry_reads_from_right_to_left():
    dry = Dry(LETTERS, **{**DRY, "breakers": ("ab",)}, backward=True)
    # The text so far is "abcd", and then "cab" before it.
    assert dry.lengths(ids("dcbadc"), LETTERS.vocab_size)[ids("b")] == 2
    assert not dry.lengths(ids("cbacba"), LETTERS.vocab_size).any()


# ---- top-n-sigma ----


@given(rows, st.floats(0.01, 5))
def test_top_n_sigma_keeps_what_is_near_the_largest(log_probs, n):
    log_probs[0, 2] = -math.inf
    values = [x for x in log_probs[0] if x > -math.inf]
    least = max(values) - n * statistics.pstdev(values)
    found = TopNSigma(n)((), normalise(log_probs))[0]
    near = [v for v in range(V) if abs(log_probs[0, v] - least) < 1e-9]
    kept = {v for v in range(V) if log_probs[0, v] >= least}
    assert {v for v in range(V) if found[v] > -math.inf} - {*near} == kept - {*near}
    assert np.exp(found).sum() == pytest.approx(1)


def test_top_n_sigma_does_not_depend_on_the_temperature():
    log_probs = normalise(np.random.default_rng(1).normal(size=(4, 50)))
    kept = [TopNSigma(1)((), normalise(log_probs / t)) > -math.inf for t in (0.3, 1, 4)]
    assert (kept[0] == kept[1]).all() and (kept[1] == kept[2]).all()


# ---- XTC ----


@given(rows, st.floats(0, 1))
def test_xtc_keeps_the_least_probable_of_the_top_choices(log_probs, threshold):
    (found,) = Xtc(1.0, threshold, 1)([History([1])], log_probs)
    by_rank = sorted(range(V), key=lambda v: (-log_probs[0, v], v))
    top = [v for v in by_rank if math.exp(log_probs[0, v]) >= threshold]
    kept = {*range(V)} - {*top[:-1]}
    assert {v for v in range(V) if found[v] > -math.inf} == kept
    mass = sum(math.exp(log_probs[0, v]) for v in kept)
    assert all(math.exp(found[v]) == pytest.approx(math.exp(log_probs[0, v]) / mass) for v in kept)


def test_xtc_happens_as_often_as_it_should():
    log_probs = np.log([[0.4, 0.3, 0.2, 0.1]])
    xtc = Xtc(0.3, 0.15, 7)
    places = itertools.product(range(20), range(20), range(5))
    texts = [History([0] * (1 + t), 1, (i, j)) for i, j, t in places]
    found = xtc(texts, np.repeat(log_probs, len(texts), 0))
    happened = (found[:, 0] == -math.inf).mean()
    assert happened == pytest.approx(0.3, abs=0.03)
    assert (xtc(texts[::-1], np.repeat(log_probs, len(texts), 0))[::-1] == found).all()


# ---- in their order, with the others ----

EVERY = {"dry_multiplier": 1.0, "xtc_probability": 0.5, "top_n_sigma": 1.0}


def test_filters_apply_in_the_documented_order():
    others = {"repetition_penalty": 1.1, "no_repeat_ngram": 4, "temperature": 0.9, "top_k": 5}
    others |= {"top_p": 0.9, "min_p": 0.01, "typical": 0.9}
    writer = Writer(fake(), SampleOptions.of(seed=1, **EVERY, **others))
    before = ["repetition-penalty", "no-repeat-ngram", "dry", "top-n-sigma", "temperature"]
    after = ["top-k", "top-p", "min-p", "typical", "xtc"]
    assert [one.name for one in writer.samplers] == [*before, *after]
    assert Writer(fake(), SampleOptions(seed=1)).samplers == []


@pytest.mark.parametrize("kind", ["transformer", "lstm"])
def test_texts_do_not_depend_on_the_batch(kind):
    def texts(**more):
        options = SampleOptions.of(**EVERY, num_samples=6, max_tokens=12, seed=3, **more)
        return [one.text for one in sample(real(kind), ["", "ab"], options)]

    alone = texts(batch_size=1)
    assert texts(batch_size=5) == alone == texts()
    assert len(set(alone)) > 4


def test_a_greedy_text_with_xtc_depends_on_the_seed_which_is_reported():
    def greedy(seed, **more):
        options = SampleOptions.of(greedy=True, seed=seed, max_tokens=20, **more)
        return next(sample(real("transformer"), [""], options))

    assert greedy(5).seed is None
    xtc = {"xtc_probability": 0.5, "xtc_threshold": 0.0}
    assert greedy(5, **xtc).seed == 5
    assert len({greedy(seed, **xtc).text for seed in range(4)}) > 1


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--dry-base", "2"], "--dry-base belongs to --dry-multiplier"),
        (["--dry-allowed-length", "3"], "--dry-allowed-length belongs to --dry-multiplier"),
        (["--dry-sequence-breaker", "a"], "--dry-sequence-breaker belongs to --dry-multiplier"),
        (["--xtc-threshold", "0.2"], "--xtc-threshold belongs to --xtc-probability"),
        (["--dry-multiplier", "-1"], "--dry-multiplier must be from 0 to 1,000, not -1"),
        (["--dry-multiplier", "1", "--dry-base", "0.5"], "--dry-base must be from 1 to 1,000"),
        (["--dry-multiplier", "1", "--dry-sequence-breaker", ""], "needs a text that is not empty"),
        (["--xtc-probability", "1.5"], "--xtc-probability must be from 0 to 1, not 1.5"),
        (["--top-n-sigma", "0"], "--top-n-sigma must be more than 0"),
        (["--top-n-sigma", "nan"], "--top-n-sigma"),
    ],
)
def test_wrong_settings_are_refused(flags, says, capsys):
    assert says in refusal(capsys, "sample", "a", "-m", "none", *flags)


def test_breakers_read_escapes(monkeypatch):
    options = SampleOptions.of(dry_multiplier=1.0, dry_sequence_breaker=("x", "\n"), seed=1)
    (dry,) = Writer(fake(ALPHABET), options).samplers
    assert dry.breakers == ("x", "\n")
    (dry,) = Writer(fake(ALPHABET), SampleOptions.of(dry_multiplier=1.0, seed=1)).samplers
    assert dry.breakers == ("\n", ":", '"', "*")


# ---- llama.cpp ----

FILTERED = {
    "dry": {"dry_multiplier": 0.8, "dry_allowed_length": 2},
    "dry-base": {"dry_multiplier": 1.5, "dry_base": 1.2, "dry_allowed_length": 3},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    "xtc-all": {"xtc_probability": 1.0, "xtc_threshold": 0.001},
    "sigma": {"top_n_sigma": 1.0},
    "sigma-half": {"top_n_sigma": 0.5, "temperature": 0.6},
    "together": {"dry_multiplier": 2.0, "top_n_sigma": 1.5, "top_k": 12, "min_p": 0.01},
}
FILTERED["together"] |= {"xtc_probability": 1.0, "xtc_threshold": 0.1}


@pytest.mark.long
@needs("exchange")
def test_llama_cpp_keeps_the_same_tokens(tmp_path, monkeypatch):
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    pytest.importorskip("gguf", reason="gguf is not installed")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "exchange"))
    from llama_cpp import ask_llama_cpp

    text = "the cat sat on the mat: the cat ran.\nthe dog sat on the cat, and the cat sat on "
    (tmp_path / "t.txt").write_text(text * 40)
    sizes = ("--hidden-size", "32", "--layers", "1", "--heads", "2", "--seq-len", "128")
    quick = ("--steps", "60", "--batch-size", "4", "--set", "qk_norm=false", "--quiet")
    command = ["train", str(tmp_path / "t.txt"), "--model", "transformer", "--name", "own"]
    assert run([*command, "--tokenizer", "char", "--seed", "1", *sizes, *quick]) == 0
    path = tmp_path / "own.gguf"
    assert run(["export", "own", "--format", "gguf", "--out", str(path), "--quiet"]) == 0
    loaded = load("own", "cpu")
    names = ["dry", "top_n_sigma", "top_k", "top_p", "min_p", "xtc", "temperature"]
    off = {"dry_multiplier": 0, "xtc_probability": 0, "top_n_sigma": -1, "top_k": 0, "top_p": 1}
    off |= {"min_p": 0, "temperature": 1, "dry_penalty_last_n": 1000, "repeat_penalty": 1}
    prompts = [text[:-1], text[:30], "the cat: the cat: the c", "a", "the mat the mat the ma"]
    asked = [(prompt, options) for prompt in prompts for options in FILTERED.values()]
    questions = []
    for prompt, options in asked:
        tokens = [loaded.framing.start, *loaded.ids(prompt)]
        questions.append(["filtered", tokens, {**off, **options, "samplers": names}])
    changed = 0
    for (prompt, options), answer in zip(asked, ask_llama_cpp(path, questions), strict=True):
        tokens = loaded.framing.opened(loaded.ids(prompt))
        logits, _ = prefill(loaded.model, [tokens])
        own = normalise(logits.astype(np.float64))
        found, history = own, [History(tokens, len(tokens))]
        for processor in Writer(loaded, SampleOptions.of(seed=1, **options)).samplers:
            found = processor(history, found)
        changed += np.abs(np.exp(found) - np.exp(own)).max() > 1e-3
        ours = {v: p for v, p in enumerate(np.exp(found)[0].tolist()) if p > 0}
        theirs = {token: p for token, p in answer if p > 0}
        assert {v for v in ours if ours[v] > 1e-6} <= theirs.keys(), (prompt, options)
        for token, probability in theirs.items():
            assert ours.get(token, 0.0) == pytest.approx(probability, abs=1e-4), (prompt, options)
    assert changed > len(asked) // 2
