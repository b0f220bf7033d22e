"""The pointer sentinel, and the positions that it and the continuous cache look at."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from architectures import Case, ids
from helpers_cli import records

from seqgen.cli import run
from seqgen.errors import UsageError
from seqgen.models.memory.recent import RecentPositions, add_word_weights, score_recent
from seqgen.store.loading import load

TEXT = "the cat sat on the mat\nthe dog sat on the cat\n\na dog and a cat\nthe mat\n" * 8


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def test_weights_of_one_word_add_up():
    log_probs = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log()
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.0]], dtype=torch.float64, requires_grad=True)
    words = torch.tensor([[1, 2, 1, 0]])
    made = add_word_weights(log_probs, weights, words)
    torch.testing.assert_close(made.exp(), torch.tensor([[0.5, 0.65, 0.45]], dtype=torch.float64))
    made[0, 1].backward()
    torch.testing.assert_close(weights.grad[0, :3] * 0.65, torch.tensor([1.0, 0, 1.0]).double())


@pytest.mark.parametrize(
    ("keys", "queries", "reach"), [(0, 1, 3), (4, 5, 2), (9, 9, 4), (200, 150, 7)]
)
def test_a_band_of_positions_is_seen(keys, queries, reach):
    """Against one dot product at a time."""
    q, k = ids(2, queries, 3, seed=1).double(), ids(2, keys, 3, seed=2).double()
    words = torch.arange(keys).expand(2, -1)
    found = score_recent(q, k, words, reach)
    for row, query in itertools.product(range(2), range(queries)):
        last = keys - queries + query
        wanted = {
            j: float(q[row, query] @ k[row, j]) for j in range(max(0, last - reach + 1), last + 1)
        }
        seen = found.scores[row, query] > -torch.inf
        pairs = zip(
            found.words[row, query][seen].tolist(), found.scores[row, query][seen], strict=True
        )
        assert {word: float(score) for word, score in pairs} == pytest.approx(wanted)


def test_rows_of_different_lengths_are_aligned_at_the_newest():
    one = RecentPositions.empty(1, torch.zeros(7, 3)).extended(torch.ones(1, 4, 3), ids(1, 4))
    other = RecentPositions.empty(1, torch.zeros(7, 3)).extended(
        torch.ones(1, 2, 3), ids(1, 2, seed=1)
    )
    both = RecentPositions.cat([one, other])
    assert both.tokens[0].tolist() == one.tokens[0].tolist()
    assert both.tokens[1].tolist() == [-1, -1, *other.tokens[0].tolist()]
    assert both.last(0).tokens.shape == (2, 0)


def pointed(reach):
    return Case("lstm", "pointer", {"pointer": reach, "num_layers": 1})


@torch.no_grad()
@pytest.mark.parametrize("reach", [1, 4, 100])
def test_the_pointer_is_its_equation(reach):
    model, text = pointed(reach).loud(), ids(1, 12)[0].tolist()
    h = model.hidden(torch.tensor([text]), None)[0][0].numpy()
    vocabulary = model.head(torch.from_numpy(h)).softmax(-1).numpy()
    w, b = (p.numpy() for p in (model.pointer.query.weight, model.pointer.query.bias))
    made = model(torch.tensor([text]))[0][0]
    for t in range(len(text)):
        q = np.tanh(w @ h[t] + b)
        seen = range(max(0, t - reach + 1), t + 1)
        a = softmax(np.array([*(q @ h[i] for i in seen), q @ model.pointer.sentinel.numpy()]))
        p = a[-1] * vocabulary[t]
        for i, share in zip(seen, a[:-1], strict=True):
            p[text[i]] += share
        np.testing.assert_allclose(made[t].exp(), p, rtol=0, atol=1e-12)
        assert p.sum() == pytest.approx(1)


def test_the_gradient_of_a_pointer():
    """Against differences, through a state that carries the graph on."""
    model, tokens = pointed(3).loud(), ids(1, 5)

    def nats(sentinel, weight):
        changed = {"pointer.sentinel": sentinel, "pointer.query.weight": weight}

        def read(tokens, state):
            return torch.func.functional_call(model, changed, (tokens, state))

        first, state = read(tokens[:, :2], None)
        rest, _ = read(tokens[:, 2:], state)
        return torch.cat([first, rest], 1).gather(-1, ids(1, 5, seed=3)[..., None]).sum()

    values = (model.pointer.sentinel, model.pointer.query.weight)
    assert torch.autograd.gradcheck(nats, tuple(x.detach().requires_grad_() for x in values))


def test_no_pointer_is_nothing():
    plain, zero = Case("lstm", "plain", {}).build(), pointed(0).build(num_layers=2)
    assert plain.state_dict().keys() == zero.state_dict().keys()
    assert all(
        torch.equal(a, b) for a, b in zip(plain.parameters(), zero.parameters(), strict=True)
    )
    with pytest.raises(UsageError, match="pointer must be at least 0"):
        pointed(-1).build()


def test_a_model_with_a_pointer_resumes_as_if_it_had_not_stopped(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "text").write_text(TEXT)
    how = ("--hidden-size", 8, "--layers", 1, "--steps", 6, "--seed", 1, "--set", "pointer=9")
    how = ("train", tmp_path / "text", "--model", "rnn", *how, "--val", "none", "-q")
    assert run([*map(str, (*how, "--name", "whole"))]) == 0
    assert run([*map(str, (*how, "--name", "parts", "--stop-after", 3))]) == 0
    assert run(["train", "--resume", "parts", "-q"]) == 0
    one, other = load("whole").model, load("parts").model
    assert one.pointer is not None
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    (record,) = records(capsys, "sample", "the", "-m", "whole", "--seed", 1, "--max-tokens", 20)
    assert math.isfinite(record["logprob"])
    assert json.dumps(record)
