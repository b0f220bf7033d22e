"""Dynamic evaluation: against torch's own SGD; what it leaves alone; what it refuses."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from architectures import Case, ids
from helpers_cli import known_architectures, needs, records, refusal

from seqgen.errors import SeqgenError
from seqgen.plugins.dynamic.dynamic import score_dynamically
from seqgen.scoring.loop import score_corpus
from seqgen.text.corpus import Corpus
from seqgen.training.train import train

TEXT = "the cat sat on the mat\nthe dog sat on the cat\n\na dog and a cat\nthe mat\n" * 8
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
    found = list(score_dynamically(model, corpus, 0.1, 0.05, 5))
    nats = -np.concatenate([piece.log_probs for piece in found])
    np.testing.assert_allclose(nats, by_sgd(model, corpus, 0.1, 0.05, 5), rtol=0, atol=1e-10)
    assert np.concatenate([piece.tokens for piece in found]).tolist() == corpus.tokens.tolist()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    again = list(score_dynamically(model, corpus, 0.1, 0.05, 5))
    assert np.array_equal(nats, -np.concatenate([piece.log_probs for piece in again]))


def test_without_a_rate_it_is_plain_scoring():
    model, corpus = Case("lstm", "plain", {}).loud(), stream(23)
    found = list(score_dynamically(model, corpus, 0.0, 0.0, 4))
    plain = list(score_corpus(model, corpus))
    for name in ("log_probs", "hits", "ranks"):
        made, wanted = (np.concatenate([getattr(p, name) for p in x]) for x in (found, plain))
        np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-10)


@needs("window")
def test_weights_come_back_when_it_is_stopped_and_when_it_diverges():
    model, corpus = Case("lstm", "plain", {}).loud(), stream(40)
    before = [parameter.clone() for parameter in model.parameters()]
    started = score_dynamically(model, corpus, 0.1, 0.0, 5)
    next(started)
    started.close()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    linear = {"context_size": 5, "hidden_size": 0, "direct": True}
    model = Case("window", "linear", linear).loud()
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(SeqgenError, match=r"diverged after \d+ tokens; give a smaller --dynamic"):
        list(score_dynamically(model, corpus, 1e6, 0.0, 5))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dynamic")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        (folder / "text").write_text(TEXT)
        (folder / "val").write_text(HELD_OUT)
        tiny = {"steps": 5, "hidden_size": 8, "num_layers": 1, "seed": 1}
        same = {"val": str(folder / "val")}
        train([folder / "text"], architecture="ngram", name="counts", settings=same)
        train([folder / "text"], architecture="lstm", name="net", settings={**tiny, **same})
        reader = {**tiny, **same, "num_heads": 2, "seq_len": 16}
        train([folder / "text"], architecture="transformer", name="windowed", settings=reader)
        lines = {**tiny, "documents": "line"}
        train([folder / "text"], architecture="lstm", name="lines", settings=lines)
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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("-m", "counts", "--dynamic", 1), "counts is estimated from counts"),
        (("-m", "net+counts", "--dynamic", 1), "is a mixture"),
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
