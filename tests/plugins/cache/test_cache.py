"""The continuous cache against NumPy; `--cache` in the commands."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from architectures import VOCAB, CachedCase, Case, ids
from helpers_cli import records, refusal
from training_runs import FIVE_STEPS, home_with_models

import seqgen
from seqgen.cli import run
from seqgen.plugins.cache.model import CachedModel
from seqgen.scoring.mixture_fitting import fit
from seqgen.scoring.perplexity import perplexity
from seqgen.settings.scoring import CacheConfig
from seqgen.store.loading import load
from seqgen.training.train import train

HELD_OUT = "a cat and a mat\na cat and a mat\na dog and a mat\na cat and a mat\n" * 3


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def cache_by_definition(model, text):
    """Return p(w | past) (T, V) after each token of a text, in float64, position by position."""
    tokens, (size, strength, flatness) = torch.tensor([text]), vars(model.cache).values()
    h = model.inner.hidden(tokens, model.inner.start(1))[0][0].numpy()
    logits = model.inner(tokens, model.inner.start(1))[0][0].numpy()
    found = []
    for t in range(len(text)):
        p = softmax(logits[t])
        past = range(max(0, t - size), t)
        if past:
            cached = np.zeros(VOCAB)
            for i, share in zip(past, softmax(flatness * h[past] @ h[t]), strict=True):
                cached[text[i + 1]] += share
            p = (1 - strength) * p + strength * cached
        found.append(p)
    return np.stack(found)


@torch.no_grad()
@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
@pytest.mark.parametrize("size", [1, 5, 100])
def test_the_cache_is_its_equation(architecture, size):
    inner = Case(architecture, "inner", {}).loud()
    model, text = CachedModel(inner, CacheConfig(size, 0.4, 0.7)).eval(), ids(90).tolist()
    wanted = torch.from_numpy(cache_by_definition(model, text))
    tokens = torch.tensor([text])
    whole, _ = model(tokens, model.start(1))
    torch.testing.assert_close(whole[0].exp(), wanted, rtol=0, atol=1e-12)
    state, pieces = model.start(1), []
    for piece in tokens.split([1, 1, 70, 3, 15], 1):
        logits, state = model(piece, state)
        pieces.append(logits)
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=0, atol=1e-10)
    targets = ids(1, 90, seed=1)
    scores, _ = model.score(tokens, targets, model.start(1), "ranks")
    chosen = wanted.gather(-1, targets[0, :, None])[:, 0]
    torch.testing.assert_close(scores.log_probs[0].exp(), chosen, rtol=0, atol=1e-12)
    assert torch.equal(scores.ranks[0], (wanted > chosen[:, None]).sum(-1))


@torch.no_grad()
def test_a_cached_transformer_steps_selects_joins_and_copies_past_its_window():
    model = CachedModel(Case("transformer", "inner", {}).loud(), CacheConfig(30, 0.4, 0.7)).eval()
    pasts = [ids(19, seed=1).tolist(), ids(3, seed=2).tolist()]
    states = [model(torch.tensor([past]), model.start(1))[1] for past in pasts]
    joined = type(states[0]).cat([state.copy() for state in states]).select([1, 0, 1])
    kept = joined.copy()
    for token in (2, 5, 1):
        logits, joined = model.step([token] * 3, joined)
    for row, past in enumerate([pasts[1], pasts[0], pasts[1]]):
        wanted = cache_by_definition(model, [*past, 2, 5, 1])[-1]
        np.testing.assert_allclose(np.exp(logits[row]), wanted, rtol=0, atol=1e-12)
    again, _ = model(torch.tensor([[2, 5, 1]] * 3), kept)
    np.testing.assert_allclose(again[:, -1], logits, rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_cache_without_strength_says_what_the_model_says():
    inner, tokens = Case("lstm", "inner", {}).loud(), ids(2, 9)
    model = CachedModel(inner, CacheConfig(5, strength=0.0)).eval()
    torch.testing.assert_close(model(tokens)[0], inner(tokens)[0].log_softmax(-1))
    scores, _ = model.score(tokens, tokens, model.start(2))
    wanted, _ = inner.score(tokens, tokens, inner.start(2))
    torch.testing.assert_close(scores.log_probs, wanted.log_probs)


@torch.no_grad()
def test_huge_features_are_no_nan():
    model = CachedCase("cached", "rnn", {}).build(torch.float32)
    model.cache = CacheConfig(5, 0.5, 1000)
    for parameter in model.inner.layers.parameters():
        parameter.fill_(1e4)
    logits, _ = model(ids(2, 12))
    assert not logits.isnan().any()
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(2, 12), rtol=0, atol=1e-2)


def pointed(reach):
    return Case("lstm", "pointer", {"pointer": reach, "num_layers": 1})


@torch.no_grad()
def test_a_cache_beside_a_pointer():
    model = CachedModel(pointed(4).loud(), CacheConfig(5, 0.4, 0.7)).eval()
    text = ids(12).tolist()
    made, _ = model(torch.tensor([text]), model.start(1))
    np.testing.assert_allclose(made[0].exp(), cache_by_definition(model, text), rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with a model of each kind: an LSTM with a pointer, n-grams, lines, translations."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "pairs.tsv").write_text("a b\tb a\nc d\td c\n" * 10)
    with home_with_models(folder, HELD_OUT) as same:
        pointer = {**FIVE_STEPS, **same, "pointer": 20}
        train([folder / "text"], architecture="gru", name="pointed", settings=pointer)
        train([folder / "pairs.tsv"], architecture="seq2seq", name="pairs", settings=FIVE_STEPS)
        yield folder


WANT = ("--cache", "50", "--cache-strength", "0.25", "--cache-flatness", "0.5")


def test_a_cache_in_perplexity(home, capsys):
    (plain,) = records(capsys, "perplexity", home / "val", "-m", "net")
    (found,) = records(capsys, "perplexity", home / "val", "-m", "net", *WANT)
    assert found["perplexity"] < plain["perplexity"]
    about = "cache of 50 positions, strength 0.25, flatness 0.5"
    assert found["protocol"] == f"{plain['protocol']}; {about}"
    assert "|cache:50/0.25/0.5|" in found["signature"]
    assert "cache" not in plain["signature"]
    (with_default,) = records(capsys, "perplexity", home / "val", "-m", "net", "--cache", 50)
    assert "|cache:50/0.1/0.3|" in with_default["signature"]
    per_token = records(capsys, "perplexity", home / "val", "-m", "net", *WANT, "--per-token")
    assert -sum(r["logprob"] for r in per_token) == pytest.approx(found["nll_nats"])
    (line,) = records(capsys, "perplexity", home / "val", "-m", "lines", *WANT)
    assert line["protocol"].startswith("each line alone")


def test_a_cache_where_text_is_written_and_compared(home, capsys):
    for method, *command in (("sample", "sample", "--seed", 1), ("beam_search", "beam-search")):
        how = (*command, "a cat and", "-m", "net", "--max-tokens", 30)
        (plain,), (cached,) = records(capsys, *how), records(capsys, *how, *WANT)
        assert plain["text"] != cached["text"]
        write = getattr(seqgen.load("net", cache=CacheConfig(50, 0.25, 0.5)), method)
        assert next(write("a cat and", max_tokens=30, seed=1)).text == cached["text"]
    (found,) = records(capsys, "eval", home / "val", "-m", "net", "--perplexity", *WANT)
    (own,) = records(capsys, "perplexity", home / "val", "-m", "net", *WANT)
    assert found["perplexity"]["perplexity"] == own["perplexity"]
    compared = records(capsys, "compare", "net", "pointed", *WANT)
    assert compared[0]["bits_per_char"] == pytest.approx(own["bits_per_char"])
    assert all("|cache:50/0.25/0.5|" in record["signature"] for record in compared)


def test_a_mixture_gives_its_neural_parts_a_cache(home):
    cache = CacheConfig(50, 0.25, 0.5)
    mixed = load("net:0.3+counts:0.7", cache=cache)
    alone = load("net", cache=cache)
    tokens = mixed.tokenizer.encode(HELD_OUT)
    tokens = torch.from_numpy(np.asarray(tokens, dtype=np.int64))[None]
    with torch.no_grad():
        parts = [alone.model(tokens)[0], load("counts").model(tokens)[0]]
        made = mixed.model(tokens, mixed.model.start(1))[0]
    wanted = 0.3 * parts[0].softmax(-1) + 0.7 * parts[1].softmax(-1)
    torch.testing.assert_close(made.exp(), wanted, rtol=0, atol=1e-6)


@pytest.mark.fast_for("net", "net+counts", rest="slow")
@pytest.mark.parametrize("name", ["net", "net+counts", "net+pointed"])
def test_what_is_fitted_is_the_best_of_a_grid_and_is_what_perplexity_gives(home, name):
    mixed, found = fit(load(name, cache=CacheConfig(40)), [HELD_OUT])
    assert perplexity(mixed, [HELD_OUT]).perplexity == pytest.approx(found.perplexity, rel=1e-5)
    assert found.cache == vars(mixed.cache)
    for strength, flatness in itertools.product((0.05, 0.2, 0.5, 0.8), (0.0, 0.1, 1.0, 5.0)):
        tried = load(found.model, cache=CacheConfig(40, strength, flatness))
        assert perplexity(tried, [HELD_OUT]).perplexity >= found.perplexity * (1 - 1e-4)
    if name == "net":
        assert found.weights == [1]
        assert found.components == [pytest.approx(perplexity(load("net"), [HELD_OUT]).perplexity)]


def test_fit_prints_the_options_to_use(home, capsys):
    assert run(["perplexity", "-m", "net", "--cache", "40", "--fit", str(home / "val"), "-q"]) == 0
    fitted = capsys.readouterr().out.split()
    assert fitted[:3] == ["net", "--cache", "40"]
    (again,) = records(capsys, "perplexity", home / "val", "-m", *fitted)
    (record,) = records(capsys, "perplexity", "-m", "net", "--cache", 40, "--fit", "held-out")
    assert list(record) == [
        *("model", "weights", "tokens", "perplexity", "components", "rounds", "cache")
    ]
    assert again["perplexity"] == pytest.approx(record["perplexity"], rel=1e-5)
    strength, flatness = record["cache"]["strength"], record["cache"]["flatness"]
    assert fitted[3:] == ["--cache-strength", f"{strength:g}", "--cache-flatness", f"{flatness:g}"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("-m", "counts", "--cache", 5), "counts has no hidden vectors, which --cache compares"),
        (("-m", "pairs", "--cache", 5), "--cache is for models of text"),
        (("-m", "net", "--cache", 0), "--cache must be at least 1"),
        (("-m", "net", "--cache", 5, "--cache-strength", 1), "--cache-strength must be"),
        (("-m", "net", "--cache", 5, "--cache-flatness", -1), "--cache-flatness must be"),
        (
            ("-m", "net", "--cache-strength", 0.1),
            "--cache-strength belongs to a cache: give --cache",
        ),
        (("-m", "net", "--fit", "held-out"), "give -m A+B, or --cache N"),
        (
            ("-m", "net", "--cache", 5, "--cache-strength", 0.2, "--fit", "held-out"),
            "leave them out",
        ),
    ],
)
def test_bad_caches_in_one_line(home, capsys, given, said):
    assert said in refusal(capsys, "perplexity", *given)
