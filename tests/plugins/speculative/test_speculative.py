"""Reading ahead: the same texts as without, to the last bit; what is guessed, and how many."""

import dataclasses
import re

import numpy as np
import pytest
from helpers_cli import has_plugin, needs, records, refusal
from hypothesis import given
from hypothesis import strategies as st

from seqgen.cli import run
from seqgen.engines.native.library import library
from seqgen.generation.sample import sample, stream
from seqgen.plugins.speculative import model as speculative
from seqgen.plugins.speculative.drafters import LENGTHS, LookupDrafter, TextLookup
from seqgen.plugins.speculative.model import ReadCosts, draft_length
from seqgen.settings.generation import SampleOptions
from seqgen.store.loading import Work, load

compiled = pytest.mark.skipif(library() is None, reason="without the compiled library")

TEXT = "".join(f"{n}. the cat sat on mat {n % 7}, and the dog sat by it\n" for n in range(150))
TRAIN = ("--steps", "150", "--batch-size", "8", "--val", "none", "--seed", "1", "--quiet")
TRANSFORMER = ("--model", "transformer", "--heads", "2", "--layers", "2", "--hidden-size", "16")
UNTRAINED = ("--model", "lstm", "--hidden-size", "8", "--steps", "1")
PROMPTS = [TEXT[:40], "1", "the dog sat on the mat, the dog", "", TEXT[30:33], "a\nb\na\nb\na"]


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """Train the models: two transformers, two smaller models, and one with other tokens."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("SEQGEN_HOME", str(folder))
        file = folder / "text.txt"
        file.write_text(TEXT)
        for name, more in {
            "m": (*TRANSFORMER, "--seq-len", "24"),
            "learned": (*TRANSFORMER, "--seq-len", "64", "--set", "positions=learned"),
            "lstm": ("--model", "lstm", "--hidden-size", "16", "--seq-len", "24"),
            "backward": (*UNTRAINED, "--direction", "backward"),
            "bytes": (*UNTRAINED, "--tokenizer", "byte"),
        }.items():
            assert run(["train", str(file), "--name", name, *TRAIN, *more]) == 0
        grams = ("--model", "ngram", "--order", "4", "--val", "none", "--quiet")
        assert run(["train", str(file), "--name", "grams", *grams]) == 0
        yield


@pytest.fixture
def always(monkeypatch):
    """Guess as many tokens as are allowed, whatever they cost."""
    monkeypatch.setattr(ReadCosts, "of_one_more", lambda self: 0.0)


def loaded_in(precision, name="m"):
    """Load a model over arrays, or in PyTorch if it has a precision."""
    return load(name, "cpu", precision, work=Work() if precision == "auto" else None)


def texts(loaded, prompts=PROMPTS, **options):
    """Return the records of sampled texts, and the counts of draft tokens."""
    options = SampleOptions.of(**{"max_tokens": 60, "seed": 3, **options})
    found = [dataclasses.asdict(record) for record in sample(loaded, prompts, options)]
    counts = [each.counts for each in options.added_filters if hasattr(each, "counts")]
    return found, counts[0]


# ---- the same texts ----


@compiled
@pytest.mark.fast_for("auto-*", rest="slow")
@pytest.mark.parametrize("guessing", [{"lookup": 5}, {"draft": "lstm"}, {"draft": "grams"}])
@pytest.mark.parametrize("precision", ["auto", "int8"])
def test_texts_and_logprobs_are_the_same(precision, guessing, always):
    """Alone and side by side, greedy and sampled."""
    loaded = loaded_in(precision)
    for temperature in (0, 0.8):
        for batch_size, prompts in ((1, PROMPTS), (16, PROMPTS * 3)):
            about = {"temperature": temperature, "batch_size": batch_size, "max_tokens": 40}
            plain, _ = texts(loaded, prompts, **about)
            found, counts = texts(loaded, prompts, **about, **guessing)
            assert found == plain
            assert 0 < counts.accepted < counts.drafted


@compiled
@pytest.mark.fast_for("learned", rest="slow")
@pytest.mark.parametrize("name", ["m", "learned"])
def test_texts_side_by_side_with_drafts_of_any_length(name, monkeypatch):
    """Rows have read ahead by different numbers of tokens when the slots of the cache move."""
    draws = np.random.default_rng(5)
    monkeypatch.setattr(
        speculative,
        "draft_length",
        lambda rate, every, cost, most: int(draws.integers(0, most + 1)),
    )
    loaded = loaded_in("auto", name)
    about = {"temperature": 0.3, "max_tokens": 300, "batch_size": 2}
    plain, _ = texts(loaded, ["1", TEXT[:30]], **about)
    for _ in range(6):
        found, counts = texts(loaded, ["1", TEXT[:30]], **about, draft=name)
        assert found == plain and counts.accepted


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["auto", "int8"])
def test_five_hundred_short_prompts(precision):
    """With the costs that are measured, as a user has it."""
    loaded, draws = loaded_in(precision), np.random.default_rng(7)
    begins = draws.integers(0, len(TEXT) - 40, 500).tolist()
    prompts = [TEXT[begin : begin + 1 + begin % 40] for begin in begins]
    for batch_size in (1, 16):
        about = {"temperature": 0.7, "batch_size": batch_size, "max_tokens": 12}
        plain, _ = texts(loaded, prompts, **about)
        found, counts = texts(loaded, prompts, lookup=8, **about)
        assert found == plain and counts.accepted


@compiled
@pytest.mark.fast_for("m-int4", "learned-float32", rest="slow")
@pytest.mark.parametrize("precision", ["float32", "int4"])
@pytest.mark.parametrize("name", ["m", "learned"])
def test_other_precisions_and_positions(precision, name, always):
    loaded = loaded_in(precision, name)
    plain, _ = texts(loaded, temperature=0.7, num_samples=3)
    found, counts = texts(loaded, temperature=0.7, num_samples=3, lookup=9)
    assert found == plain and counts.accepted


FILTERS = [
    {"top_k": 3, "top_p": 0.8, "min_p": 0.01},
    {"repetition_penalty": 1.3, "presence_penalty": 0.2, "frequency_penalty": 0.1},
    {"no_repeat_ngram": 4, "ban": ("cat",), "force": "the ", "min_tokens": 20},
    {"stop": ("sat on", "\n"), "num_samples": 5, "best_of": 2},
    {"dry_multiplier": 0.8, "xtc_probability": 0.5, "xtc_threshold": 0.05, "top_n_sigma": 2.0},
    {"pattern": r"([a-z ]+\d*, )*\."},
]


@compiled
@needs("samplers", "patterns")
@pytest.mark.fast_for("filters3", "filters5", rest="slow")
@pytest.mark.parametrize("filters", FILTERS)
def test_filters_and_stop_strings_see_the_same(filters, always):
    loaded = loaded_in("auto")
    for temperature in (0.6, 1.2):
        plain, _ = texts(loaded, temperature=temperature, **filters)
        assert texts(loaded, temperature=temperature, lookup=6, **filters)[0] == plain


@compiled
def test_a_full_window_begins_anew(always):
    """Rows come to the end of their window (24) at different steps, and several times."""
    loaded, prompts = loaded_in("auto"), [TEXT[:n] for n in (1, 5, 5, 22, 23, 24, 25, 90)]
    for precision in ("auto", "int8"):
        loaded = loaded_in(precision)
        plain, _ = texts(loaded, prompts, temperature=0.5, max_tokens=80)
        found, counts = texts(loaded, prompts, temperature=0.5, max_tokens=80, lookup=12)
        assert found == plain and counts.accepted


@compiled
def test_measured_costs_change_no_text():
    loaded = loaded_in("auto")
    for seed in range(5):
        plain, _ = texts(loaded, temperature=0.7, seed=seed)
        assert texts(loaded, temperature=0.7, seed=seed, lookup=8)[0] == plain


@compiled
def test_a_stream_and_an_explanation_are_the_same(capsys, always):
    loaded, options = loaded_in("auto"), {"seed": 1, "temperature": 0.5, "max_tokens": 50}
    pieces = [
        [*stream(loaded, PROMPTS[0], SampleOptions.of(**options, **more))]
        for more in ({}, {"lookup": 4})
    ]
    assert pieces[0] == pieces[1]
    command = ("sample", "the cat", "-m", "m", "--seed", "2", "--max-tokens", "12", "--explain")
    if has_plugin("explain"):
        assert records(capsys, *command) == records(capsys, *command, "--lookup", "3")


@compiled
def test_states_are_as_if_wrong_guesses_were_never_read(always):
    """Drop, repeat, reorder, copy and join rows at random steps, beside the model itself."""
    loaded = loaded_in("auto")
    model, draws = loaded.model, np.random.default_rng(5)
    counts = speculative.DraftCounts()
    reading = speculative.make_speculative(loaded, "", LookupDrafter(), 7, counts).model
    ids = np.array([loaded.ids(TEXT[:20]), loaded.ids(TEXT[40:60])])
    states = [each(ids, each.start(2), last=1)[1] for each in (reading, model)]
    rows = 2
    for step in range(120):
        # Mostly what repeats, so that some guesses are kept.
        tokens = [int(ids[0, (step + row // 2) % 9]) for row in range(rows)]
        if step % 7 == 3:
            tokens = draws.integers(5, 20, rows).tolist()
        logits, after = zip(
            *(each.step(tokens, s) for each, s in zip((reading, model), states, strict=True)),
            strict=True,
        )
        np.testing.assert_array_equal(*logits)
        states = [*after]
        if step % 5 == 4:
            picked = draws.integers(0, rows, draws.integers(1, 5)).tolist()
            picked = sorted(set(picked)) if step % 2 else picked
            states, rows = [state.select(picked) for state in states], len(picked)
        if step % 11 == 10:
            kept = [state.copy() for state in states]
            states = [type(a).cat([a, b]) for a, b in zip(states, kept, strict=True)]
            rows *= 2
            if rows > 6:
                states, rows = [state.select(range(2)) for state in states], 2


# ---- what is guessed ----


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 9))
def test_lookup_goes_on_after_the_longest_known_ngram(tokens, count):
    index = TextLookup()
    index.push(tokens)
    places = [
        (n, end)
        for n in LENGTHS
        for end in range(n, len(tokens))
        if tokens[end - n : end] == tokens[len(tokens) - n :]
    ]
    if not places:
        assert index.length == 0
        return
    n = max(places)[0]
    follows = max(end for length, end in places if length == n)
    whole = list(tokens)
    for place in range(follows, follows + count):
        whole.append(whole[place])
    assert (index.length, index.draft(count)) == (n, whole[len(tokens) :])


@given(st.floats(0, 1), st.floats(0.01, 1), st.integers(0, 12))
def test_as_many_guesses_as_give_most_tokens_for_their_time(rate, cost, most):
    def speed(count):
        return sum(rate**n for n in range(count + 1)) / (1 + cost * count)

    best = max(map(speed, range(most + 1)))
    assert speed(draft_length(rate, rate, cost, most)) == pytest.approx(best, rel=1e-9)


def test_beside_rows_that_must_be_read_anyway_no_guess_is_worth_its_time():
    assert draft_length(0.9, 0.0, 0.2, 8) == 0
    assert draft_length(0.95, 0.95**16, 0.2, 8) < draft_length(0.95, 0.95, 0.2, 8)


def test_costs_follow_what_is_measured():
    costs = ReadCosts()
    assert costs.of_one_more() == speculative.COST
    for _ in range(50):
        costs.note(1, 1.0)
        costs.note(5, 1.4)
    assert costs.of_one_more() == pytest.approx(0.1)
    costs.note(5, 1000.0)  # a disturbed one
    assert costs.of_one_more() < 0.2
    for _ in range(speculative.FORGOTTEN):
        costs.note(1, 1.0)
    assert costs.of_one_more() == speculative.COST  # after a while it is tried again


# ---- the command ----


@compiled
def test_verbose_says_how_many_drafted_tokens_were_accepted(capsys):
    command = ("sample", PROMPTS[0], "-m", "m", "--seed", "1", "--greedy", "--max-tokens", "90")
    plain = records(capsys, *command)
    capsys.readouterr()
    assert run([*command, "--lookup", "8", "--verbose", "--json"]) == 0
    said = capsys.readouterr()
    accepted, read = map(int, re.search(r"(\d+) accepted of (\d+)", said.err).groups())
    assert 0 < accepted <= read
    assert records(capsys, *command, "--lookup", "8") == plain
    assert run([*command, "--lookup", "8"]) == 0
    assert "accepted" not in capsys.readouterr().err


def test_refusals_are_one_line(capsys):
    command = ("sample", "a", "--max-tokens", "3", "-m")
    for name in ("lstm", "grams", "m+lstm", *["m:bytes"] * has_plugin("bytes")):
        line = refusal(capsys, *command, name, "--lookup", "3")
        assert "--lookup is for transformers of text" in line
    assert "--draft is for" in refusal(capsys, *command, "lstm", "--draft", "grams")
    assert "different tokenizers" in refusal(capsys, *command, "m", "--draft", "bytes")
    assert "different directions" in refusal(capsys, *command, "m", "--draft", "backward")
    assert "nobody" in refusal(capsys, *command, "m", "--draft", "nobody")
    assert "not both" in refusal(capsys, *command, "m", "--draft", "lstm", "--lookup", "2")
    assert "--suggest" in refusal(capsys, *command, "m", "--suggest", "2", "--lookup", "2")
    for wrong in ("0", "-1", "64", "x", "1.5"):
        assert "--lookup" in refusal(capsys, *command, "m", "--lookup", wrong)
    assert "--lookup" in refusal(capsys, *command, "m", "--lookup", "2", "--precision", "bf16")
    assert refusal(capsys, *command, "m", "--draft", "")


def test_without_the_compiled_library_it_is_refused(capsys, monkeypatch):
    from seqgen.models.transformer.arrays import TransformerArrays

    monkeypatch.setattr(TransformerArrays, "program", None)
    assert "compiled" in refusal(capsys, "sample", "a", "-m", "m", "--lookup", "2")
