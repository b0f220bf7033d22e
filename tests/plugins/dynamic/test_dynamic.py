"""Dynamic evaluation: against torch's own SGD; what it leaves alone; what it refuses."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from architectures import Case, ids
from helpers_cli import known_architectures, needs, records, refusal
from training_runs import FIVE_STEPS, home_with_models

from seqgen import store
from seqgen.errors import SeqgenError
from seqgen.models.mixture.model import Mixture
from seqgen.models.mixture.weights import MixtureWeights
from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.plugins.dynamic.adaptive_ngram import AdaptiveNGram
from seqgen.plugins.dynamic.dynamic import (
    DynamicModel,
    LearningRule,
    predict_tokens,
    score_dynamically,
)
from seqgen.scoring.loop import score_corpus
from seqgen.store.loading import load
from seqgen.text.corpus import Corpus
from seqgen.training import with_ngram
from seqgen.training.counting import fit
from seqgen.training.train import train

HELD_OUT = "a cat and a mat\na cat and a mat\na dog and a mat\n" * 4


def stream(length):
    return Corpus(ids(length).numpy(), np.array([length]), start=0)


def by_sgd(model, corpus, rate, decay, length):
    """Return the nats of each token: a copy trained by `torch.optim.SGD`, token by token."""
    model, trained = copy.deepcopy(model), copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    text = [corpus.start, *corpus.tokens.tolist()]
    state, found = None, []
    for first in range(0, len(text) - 1, length):
        last = min(first + length, len(text) - 1)
        if model.window is None:
            logits, state = model(torch.tensor([text[first:last]]), state)
            state = state.detach()
        else:
            logits, _ = model(torch.tensor([text[max(0, last - model.window) : last]]))
        chosen = torch.tensor(text[first + 1 : last + 1])
        nats = -logits[0, first - last :].log_softmax(-1)[range(last - first), chosen]
        optimizer.zero_grad()
        nats.mean().backward()
        with torch.no_grad():
            back = [
                decay * (t - p)
                for t, p in zip(trained.parameters(), model.parameters(), strict=True)
            ]
        optimizer.step()
        with torch.no_grad():
            for parameter, step in zip(model.parameters(), back, strict=True):
                parameter += step
        found += nats.tolist()
    return np.array(found)


@pytest.mark.parametrize(
    "architecture", known_architectures(["lstm", "gru", "window", "transformer"])
)
def test_it_is_sgd_segment_by_segment(architecture):
    model, corpus = Case(architecture, "plain", {}).loud(), stream(23)
    before = [parameter.clone() for parameter in model.parameters()]
    found = list(score_dynamically(model, corpus, LearningRule(0.1, 0.05, 5)))
    nats = -np.concatenate([piece.log_probs for piece in found])
    np.testing.assert_allclose(nats, by_sgd(model, corpus, 0.1, 0.05, 5), rtol=0, atol=1e-10)
    assert np.concatenate([piece.tokens for piece in found]).tolist() == corpus.tokens.tolist()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    again = list(score_dynamically(model, corpus, LearningRule(0.1, 0.05, 5)))
    assert np.array_equal(nats, -np.concatenate([piece.log_probs for piece in again]))


def test_without_a_rate_it_is_plain_scoring():
    model, corpus = Case("lstm", "plain", {}).loud(), stream(23)
    found = list(score_dynamically(model, corpus, LearningRule(0.0, 0.0, 4)))
    plain = list(score_corpus(model, corpus))
    for name in ("log_probs", "hits", "ranks"):
        made, wanted = (np.concatenate([getattr(p, name) for p in x]) for x in (found, plain))
        np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-10)


@needs("window")
def test_weights_come_back_when_it_is_stopped_and_when_it_diverges():
    model, corpus = Case("lstm", "plain", {}).loud(), stream(40)
    before = [parameter.clone() for parameter in model.parameters()]
    started = score_dynamically(model, corpus, LearningRule(0.1, 0.0, 5))
    next(started)
    started.close()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    linear = {"context_size": 5, "hidden_size": 0, "direct": True}
    model = Case("window", "linear", linear).loud()
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(SeqgenError, match=r"diverged after \d+ tokens; give a smaller --dynamic"):
        list(score_dynamically(model, corpus, LearningRule(1e6, 0.0, 5)))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def mixture_of(networks, by):
    """Return a mixture of networks and a 3-gram model, and the discounts of that."""
    ngram = NGram(NGramConfig(vocab_size=networks[0].vocab_size, order=3)).double().eval()
    facts = fit(ngram, Corpus(ids(400, seed=5).numpy(), np.array([400]), start=0), [])
    parts, size = [*networks, ngram], len(networks) + 1
    generator, tables = np.random.default_rng(1), {}
    if by == "order":
        tables["by_order"] = generator.dirichlet([1.0] * size, size=3)
    if by == "context":
        tables["gate"] = generator.normal(0.3, 0.1, (3 + size**2, size))
    weights = MixtureWeights(generator.dirichlet([1.0] * size), **tables)
    return Mixture(parts, weights), facts.discounts


@pytest.mark.parametrize("by", [None, "order", "context"])
@pytest.mark.parametrize("names", [("lstm",), ("gru", "transformer")])
def test_parts_of_a_mixture_learn_as_if_alone(names, by):
    """Networks by SGD on their own loss, n-grams by counting; the mixture is that of the parts."""
    networks = [Case(name, "plain", {}).loud() for name in names]
    mixture, discounts = mixture_of(networks, by)
    corpus, how = stream(23), LearningRule(0.1, 0.05, 5)
    before = [parameter.clone() for parameter in mixture.parameters()]
    found = list(score_dynamically(mixture, corpus, how, discounts=[discounts]))
    each = []
    for network in networks:
        alone = DynamicModel(network, how, corpus.start, [])
        tokens = corpus.tokens.tolist()
        rows = [alone.read_segment(tokens[at : at + 5]) for at in range(0, 23, 5)]
        each.append(torch.cat(rows, 1))
        alone.forget()
    counting, rows, orders = AdaptiveNGram(mixture.components[-1].arrays, discounts, 0), [], []
    for token in corpus.tokens.tolist():
        row, matched = counting.predict()
        counting.read(token)
        rows.append(row)
        orders.append(matched)
    each.append(torch.from_numpy(np.stack(rows)[None]))
    if by == "context":
        stacked = torch.stack(each, -2)
        wanted = mixture.gate.logits(stacked, torch.tensor([orders])).log_softmax(-1)[0].numpy()
    else:
        weights = mixture.weights.ravel() if by is None else mixture.table[:, orders]
        probs = np.stack([part[0].exp().numpy() for part in each])
        wanted = np.log((probs * weights.reshape(len(each), -1, 1)).sum(0))
    nats = wanted[range(23), corpus.tokens]
    made = np.concatenate([piece.log_probs for piece in found])
    np.testing.assert_allclose(made, nats, rtol=0, atol=1e-10)
    assert all(torch.equal(a, b) for a, b in zip(before, mixture.parameters(), strict=True))


@pytest.mark.parametrize("names", [("lstm",), ("gru", "transformer")])
def test_token_by_token_it_is_the_same(names):
    """As `seqgen compress` reads; of recurrent networks also where the last segment is not full."""
    length = 20 if "transformer" in names else 22
    networks = [Case(name, "plain", {}).loud() for name in names]
    mixture, discounts = mixture_of(networks, "context")
    for model, of_ngrams in ((networks[-1], []), (mixture, [discounts])):
        how = LearningRule(0.1, 0.0, 4)
        wanted = list(score_dynamically(model, stream(length), how, discounts=of_ngrams))
        reading, nats = predict_tokens(model, how, 0, of_ngrams), []
        logits = next(reading)
        for token in stream(length).tokens.tolist():
            nats.append(logits[token] - np.logaddexp.reduce(logits))
            logits = reading.send(token)
        reading.close()
        made = np.concatenate([piece.log_probs for piece in wanted])
        np.testing.assert_allclose(nats, made, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dynamic")
    with home_with_models(folder, HELD_OUT) as same:
        for name, more in (("pruned", {"prune": "0,1"}), ("delta", {"smoothing": "add-delta"})):
            train([folder / "text"], architecture="ngram", name=name, settings={**same, **more})
        train([folder / "text"], architecture="ngram", name="old", settings=same)
        store.find("old").write_record(seqgen_version="0.1.0")
        both = {**FIVE_STEPS, "val": 0.4, "with_ngram": 3}
        with pytest.MonkeyPatch.context() as keeps:
            keeps.setattr(with_ngram, "WORTH_KEEPING", -1.0)
            train([folder / "text"], architecture="lstm", name="default", settings=both)
        reader = {**FIVE_STEPS, **same, "num_heads": 2, "seq_len": 16}
        train([folder / "text"], architecture="transformer", name="windowed", settings=reader)
        yield folder


def test_dynamic_perplexity(home, capsys):
    weights = (home / "home" / "models" / "net" / "model.safetensors").read_bytes()
    (plain,) = records(capsys, "perplexity", home / "val", "-m", "net")
    how = ("perplexity", home / "val", "-m", "net", "--dynamic", "0.5", "--dynamic-decay", "0.001")
    (found,), (again,) = records(capsys, *how), records(capsys, *how)
    assert found == again
    assert found["perplexity"] < plain["perplexity"]
    assert found["tokens"] == plain["tokens"]
    about = "learning rate 0.5, decay 0.001, segments of 20 tokens"
    assert found["protocol"].endswith(f"; dynamic evaluation by SGD (Krause et al. 2018), {about}")
    assert "|dynamic:0.5/0.001/20|" in found["signature"]
    per_token = records(capsys, *how, "--per-token")
    assert -sum(r["logprob"] for r in per_token) == pytest.approx(found["nll_nats"])
    assert (home / "home" / "models" / "net" / "model.safetensors").read_bytes() == weights
    both = records(
        capsys, "perplexity", home / "val", home / "val", "-m", "net", "--dynamic", "0.5"
    )
    assert len({record["perplexity"] for record in both}) == 1
    how = ("perplexity", home / "val", "-m", "windowed", "--dynamic", "0.5")
    (windowed,) = records(capsys, *how)
    assert "|window:16/16|" in windowed["signature"]
    (windowed,) = records(capsys, *how, "--dynamic-segment", 4)
    assert "window 16, stride 4" in windowed["protocol"]


@pytest.mark.fast_for("default", "net:0.2+windowed:0.3+counts", rest="slow")
@pytest.mark.parametrize("name", ["default", "net+counts", "net:0.2+windowed:0.3+counts"])
def test_dynamic_perplexity_of_mixtures(home, capsys, name):
    """It has a protocol of its own, and what is stored stays as it is."""
    digest = load(name).stored.digest
    (plain,) = records(capsys, "perplexity", home / "val", "-m", name)
    how = ("perplexity", home / "val", "-m", name, "--dynamic", "0.1")
    (found,), (again,) = records(capsys, *how), records(capsys, *how)
    assert found == again and load(name).stored.digest == digest
    assert found["nll_nats"] < plain["nll_nats"] and found["tokens"] == plain["tokens"]
    length = 16 if "windowed" in name else 20
    assert found["protocol"].endswith(f"segments of {length} tokens; n-grams are counted on")
    assert f"|dynamic:0.1/0/{length}+counts|" in found["signature"]
    per_token = records(capsys, *how, "--per-token")
    assert -sum(r["logprob"] for r in per_token) == pytest.approx(found["nll_nats"])
    (counted,) = records(capsys, "perplexity", home / "val", "-m", name, "--dynamic", "0")
    assert counted["nll_nats"] < plain["nll_nats"]


def test_the_held_out_part_that_fitted_nothing_is_scored(home, capsys):
    (plain,), (found,) = (
        records(capsys, "perplexity", "-m", "default", "-q", *more)
        for more in ((), ("--dynamic", "0.1"))
    )
    assert found["characters"] == plain["characters"]
    assert found["characters"] < len(store.find("default").validation_text.read_text())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("-m", "counts", "--dynamic", 1),
            "networks on the text; counts is neither one nor a mixture",
        ),
        (
            ("-m", "counts+delta", "--dynamic", 1),
            "counts:0.5+delta:0.5 is neither one nor a mixture with one",
        ),
        (("-m", "net+pruned", "--dynamic", 1), "needs all n-grams; the n-gram model pruned is"),
        (("-m", "net+delta", "--dynamic", 1), "the n-gram model delta has add-delta"),
        (("-m", "net+old", "--dynamic", 1), "the discounts of the n-gram model old, which has"),
        (("-m", "lines", "--dynamic", 1), "follows one continuous text"),
        (("-m", "net", "--dynamic", 1, "--documents", "line"), "follows one continuous text"),
        (("-m", "net", "--dynamic", 1, "--per-line"), "give --per-line or --dynamic, not both"),
        (("-m", "net", "--dynamic", 1, "--cache", 5), "give --dynamic or --cache, not both"),
        (("-m", "windowed", "--dynamic", 1, "--stride", 2), "give --stride or --dynamic"),
        (("-m", "windowed", "--dynamic", 1, "--dynamic-segment", 17), "at most 16, the window"),
        (("-m", "net", "--dynamic", -1), "--dynamic must be at least 0"),
        (("-m", "net", "--dynamic", 1, "--dynamic-decay", 2), "--dynamic-decay must be"),
        (("-m", "net", "--dynamic", 1, "--dynamic-segment", 0), "--dynamic-segment must be"),
        (("-m", "net", "--dynamic-decay", 0.1), "--dynamic-decay belongs to --dynamic"),
        (("-m", "net", "--dynamic", 1, "--precision", "bf16"), "--precision float32 or float64"),
    ],
)
def test_bad_uses_in_one_line(home, capsys, given, said):
    assert said in refusal(capsys, "perplexity", *given)
