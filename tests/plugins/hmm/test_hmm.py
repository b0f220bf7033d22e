"""Hidden Markov models against sums over all paths, and EM against the textbook's loops."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from examples import examples
from helpers_cli import has_plugin, records, refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import seqgen
from seqgen import registry
from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError
from seqgen.plugins.hmm import baum_welch
from seqgen.plugins.hmm.baum_welch import (
    Tables,
    expected_counts,
    fit,
    maximise_likelihood,
    random_tables,
)
from seqgen.plugins.hmm.model import HMM
from seqgen.plugins.hmm.settings import HMMConfig
from seqgen.text.corpus import Corpus
from seqgen.training.estimators import Estimator

K, V = 3, 4
quick = settings(deadline=None, max_examples=examples(10), derandomize=True)
documents = st.lists(
    st.lists(st.integers(0, V - 1), min_size=1, max_size=9), min_size=1, max_size=6
)


def corpus_of(texts):
    return Corpus(
        np.array([*itertools.chain(*texts)], dtype=np.uint8), np.cumsum([*map(len, texts)]), 0
    )


def some_tables(seed=0, vocab=V, states=K):
    generator = np.random.default_rng(seed)
    draw = generator.dirichlet
    return (
        draw(np.ones(states)),
        draw(np.ones(states), size=states),
        draw(np.ones(vocab), size=states),
    )


def as_tensors(tables):
    return Tables(*map(torch.from_numpy, tables))


def model_of(pi, a, b, **more):
    model = HMM(HMMConfig(vocab_size=b.shape[1], num_states=b.shape[0], **more)).double()
    model.fill(*map(torch.from_numpy, (pi, a, b)))
    return model.eval()


def joint(pi, a, b, text):
    """Return p(text), a sum over all paths of hidden states."""
    total = 0.0
    for path in itertools.product(range(len(pi)), repeat=len(text)):
        p = pi[path[0]] * b[path[0], text[0]]
        for (i, j), word in zip(itertools.pairwise(path), text[1:], strict=True):
            p *= a[i, j] * b[j, word]
        total += p
    return total


def test_the_forward_algorithm_is_the_sum_over_all_paths():
    tables = some_tables()
    model, text = model_of(*tables), [2, 0, 3, 3, 1]
    with torch.no_grad():
        logits, _ = model(torch.tensor([text]))
    for t in range(1, len(text) + 1):
        expected = [joint(*tables, [*text[:t], v]) / joint(*tables, text[:t]) for v in range(V)]
        np.testing.assert_allclose(logits[0, t - 1].exp(), expected, rtol=1e-12)


def test_a_token_that_no_state_emits_begins_the_chain_again():
    """BOS is one, so the first token after it comes of the initial distribution."""
    pi, a, b = some_tables()
    b[:, 0] = 0
    b /= b.sum(1, keepdims=True)
    model = model_of(pi, a, b)
    with torch.no_grad():
        logits, _ = model(torch.tensor([[0, 2, 1]]))
        again, _ = model(torch.tensor([[3, 1, 2, 0, 2, 1]]))
    for t, text in enumerate(([], [2], [2, 1])):
        past = joint(pi, a, b, text) if text else 1
        expected = [joint(pi, a, b, [*text, v]) / past for v in range(V)]
        np.testing.assert_allclose(logits[0, t].exp(), expected, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(again[:, 3:], logits)


def test_a_long_text_does_not_underflow():
    pi, a, b = some_tables()
    b[:, 1:] *= 1e-30  # p of 3000 tokens is e^-200,000
    b[:, 0] = 1 - b[:, 1:].sum(1)
    model = model_of(pi, a, b).float()
    tokens = torch.randint(1, V, (1, 3000), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits, state = model(tokens, model.start(1))
    assert logits.isfinite().all() and state.predicted.isfinite().all()
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(1, 3000))


def rabiner(pi, a, b, texts):
    """One iteration in Rabiner's (1989) loops: equations 19, 24, 27, 36 to 40, and 109, 110."""
    k, v = b.shape
    first, pairs, emits, log_p = np.zeros(k), np.zeros((k, k)), np.zeros((k, v)), 0.0
    for text in texts:
        alpha, beta = np.zeros((len(text), k)), np.ones((len(text), k))
        alpha[0] = pi * b[:, text[0]]
        for t in range(1, len(text)):
            for j in range(k):
                alpha[t, j] = sum(alpha[t - 1, i] * a[i, j] for i in range(k)) * b[j, text[t]]
        for t in range(len(text) - 2, -1, -1):
            for i in range(k):
                beta[t, i] = sum(a[i, j] * b[j, text[t + 1]] * beta[t + 1, j] for j in range(k))
        p = alpha[-1].sum()
        gamma = alpha * beta / p
        log_p += math.log(p)
        first += gamma[0]
        for t, word in enumerate(text):
            emits[:, word] += gamma[t]
        for t in range(len(text) - 1):
            for i, j in itertools.product(range(k), repeat=2):
                pairs[i, j] += alpha[t, i] * a[i, j] * b[j, text[t + 1]] * beta[t + 1, j] / p
    return first, pairs, emits, log_p


@given(texts=documents)
@quick
def test_one_iteration_is_the_textbooks(texts):
    tables = some_tables()
    first, pairs, emits, log_p = rabiner(*tables, texts)
    found = expected_counts(as_tensors(tables), corpus_of(texts))
    assert found.log_likelihood == pytest.approx(log_p, rel=1e-12)
    np.testing.assert_allclose(found.initial, first, atol=1e-12)
    np.testing.assert_allclose(found.transition, pairs, atol=1e-12)
    np.testing.assert_allclose(found.emission.T, emits, atol=1e-12)
    after = maximise_likelihood(
        found, as_tensors(tables), torch.full((V,), 0.5, dtype=torch.float64)
    )
    np.testing.assert_allclose(after.initial, first / first.sum(), atol=1e-12)
    np.testing.assert_allclose(
        after.emission, (emits + 0.5) / (emits + 0.5).sum(1, keepdims=True), atol=1e-12
    )
    seen = pairs.sum(1) > 0
    shares = pairs / np.where(seen, pairs.sum(1), 1)[:, None]
    np.testing.assert_allclose(after.transition, np.where(seen[:, None], shares, tables[1]))


@given(texts=documents, most=st.integers(1, 30), piece=st.integers(1, 5))
@quick
def test_pieces_side_by_side_are_the_same_counts(texts, most, piece):
    """Whatever the batches are, every token is in one piece, and the counts are the pieces'."""
    tables = some_tables(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baum_welch, "PIECE", piece)
        patch.setattr(baum_welch, "ELEMENTS", most * K)
        found = expected_counts(as_tensors(tables), corpus_of(texts))
    pieces = [text[at : at + piece] for text in texts for at in range(0, len(text), piece)]
    first, pairs, emits, log_p = rabiner(*tables, pieces)
    assert found.log_likelihood == pytest.approx(log_p, rel=1e-12)
    for counts, expected in zip(
        (found.initial, found.transition, found.emission.T), (first, pairs, emits), strict=True
    ):
        np.testing.assert_allclose(counts, expected, atol=1e-12)


@given(texts=documents, seed=st.integers(0, 99), delta=st.sampled_from([0.0, 0.01, 1.0]))
@quick
def test_what_em_maximises_never_falls(texts, seed, delta):
    """That is the likelihood; with a count added, the likelihood times the prior."""
    corpus = corpus_of(texts)
    possible = torch.ones(V, dtype=torch.float64)
    tables = random_tables(HMMConfig(vocab_size=V, num_states=K), corpus, possible, seed)
    before = -math.inf
    for _ in range(12):
        expected = expected_counts(tables, corpus)
        prior = delta * float(tables.emission.log().sum()) if delta else 0.0
        assert expected.log_likelihood + prior >= before - 1e-9
        before = expected.log_likelihood + prior
        tables = maximise_likelihood(expected, tables, delta * possible)


def test_one_state_is_the_unigram():
    corpus = corpus_of([[1, 1, 2, 3, 1, 2]])
    model = HMM(HMMConfig(vocab_size=V, num_states=1, delta=0.0)).double()
    fit(model, corpus, [0], 1, lambda done: None)
    with torch.no_grad():
        logits, _ = model(torch.tensor([[3, 2]]))
    np.testing.assert_allclose(logits[0, 1].exp(), [0, 3 / 6, 2 / 6, 1 / 6], atol=1e-12)


def test_without_a_tolerance_the_whole_budget_is_used():
    """Also where rounding makes the text look less probable after an iteration than before."""
    corpus, seen = corpus_of([[1, 2, 1, 1, 3, 2], [3, 1]]), []

    def enough(done):
        seen.append(done.nats_per_token)
        return "steps" if done.number == 60 else None

    config = {"vocab_size": V, "num_states": 2, "delta": 0.0}
    _, stopped = fit(HMM(HMMConfig(**config, tolerance=0.0)), corpus, [0], 0, enough)
    assert stopped == "steps"
    assert len(seen) == 60 and any(after > before for before, after in itertools.pairwise(seen))
    last, stopped = fit(HMM(HMMConfig(**config, tolerance=1e-6)), corpus, [0], 0, enough)
    assert stopped == "converged" and last.number < 60


@pytest.mark.slow
def test_a_cycle_is_learned_by_as_many_states():
    """The text a b a c a b a c ... needs four states, and then nothing is left to guess."""
    corpus = corpus_of([[1, 2, 1, 3] * 15])
    model = HMM(HMMConfig(vocab_size=V, num_states=4, tolerance=0.0)).double()
    losses = [
        fit(model, corpus, [0], seed, lambda done: "steps" if done.number == 150 else None)[
            0
        ].nats_per_token
        for seed in range(3)
    ]
    assert min(losses) < 0.05


def test_wrong_settings():
    for wrong in ({"num_states": 0}, {"delta": -1}, {"tolerance": -1}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            HMMConfig(vocab_size=3, **wrong)


# The command line.

TEXT = "the cat sat on the mat\nthe dog sat on the log\n" * 30


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("kind", ["stream", "line"])
def test_every_command_takes_one(text, kind, capsys):
    """What training reports is what perplexity finds; it writes, mixes, is compared and shown."""
    flags = ("--model", "hmm", "--set", "num_states=6", "--documents", kind, "--seed", 7)
    *_, result = records(capsys, "train", text, *flags, "--steps", 4, "--name", "h")
    assert (result["steps"], result["stopped"], result["seed"]) == (4, "steps", 7)
    (score,) = records(capsys, "perplexity", "-m", "h")
    assert score["nll_nats"] / score["tokens"] == pytest.approx(result["val_loss"], rel=1e-6)
    again = records(capsys, "train", text, *flags, "--steps", 4, "--name", "same")[-1]
    assert again["val_loss"] == result["val_loss"]
    (written,) = records(capsys, "sample", "the", "-m", "h", "--max-tokens", 20, "--seed", 1)
    assert written["tokens"] > 0
    assert len(records(capsys, "beam-search", "the", "-m", "h", "--max-tokens", 5)) == 1
    assert (
        run(["train", str(text), "--model", "ngram", "--documents", kind, "--name", "n", "-q"]) == 0
    )
    assert records(capsys, "compare", "h", "n", "--data", text)
    assert records(capsys, "perplexity", text, "-m", "h:0.2+n")
    if has_plugin("explain"):
        assert run(["sample", "the", "-m", "h", "--explain", "--max-tokens", "3"]) == 0
    assert run(["models", "show", "h"]) == 0
    shown = capsys.readouterr().out
    assert "4 steps" in shown and "nats/token by step" in shown


@pytest.mark.fast_for("2.0-initial", "-1.0-transition", "nan-emission", rest="slow")
@pytest.mark.parametrize("table", ["initial", "transition", "emission"])
@pytest.mark.parametrize("factor", [2.0, -1.0, math.nan])
def test_probabilities_that_do_not_sum_to_1_are_damage(table, factor, text, capsys, home):
    """Over arrays and in PyTorch, whether or not there is a manifest."""
    records(capsys, "train", text, "--model", "hmm", "--steps", 1, "--name", "h")
    path = home / "models" / "h" / "model.safetensors"
    tensors = load_file(path)
    tensors[table].reshape(-1, tensors[table].shape[-1])[-1] *= np.float32(factor)
    save_file(tensors, path)
    path.with_name("manifest.json").unlink()
    wrong = "is missing or damaged: probabilities do not sum to 1"
    assert wrong in refusal(capsys, "perplexity", text, "-m", "h")
    with pytest.raises(SeqgenError, match=wrong):
        seqgen.load("h")


def test_each_iteration_is_logged_and_lowers_the_loss(text, capsys, home):
    flags = ("--model", "hmm", "--set", "num_states=5", "--set", "delta=0", "--seed", 1)
    *_, result = records(capsys, "train", text, *flags, "--steps", 6, "--name", "h")
    logged = (home / "models" / "h" / "metrics.jsonl").read_text().splitlines()
    assert len(logged) == 6
    losses = [json.loads(line)["train_loss"] for line in logged]
    assert losses == sorted(losses, reverse=True) and losses[-1] == result["train_loss"]


def test_it_stops_when_nothing_is_gained(text, capsys):
    flags = ("--model", "hmm", "--set", "num_states=2", "--set", "tolerance=0.1")
    *_, result = records(capsys, "train", text, *flags, "--name", "h")
    assert result["stopped"] == "converged" and result["steps"] < 20


def test_what_em_does_not_do_is_said(text, capsys):
    assert (
        run(["train", str(text), "--model", "hmm", "--steps", "1", "--lr", "1", "--name", "h"]) == 0
    )
    said = capsys.readouterr().err
    assert "hidden Markov models are estimated by EM; ignored: lr" in said
    line = refusal(capsys, "train", "--resume", "h", "--steps", 9)
    assert "h was estimated by EM: it has no training to resume; train it again" in line
    line = refusal(capsys, "train", text, "--init-from", "h", "--steps", 9)
    assert "h was estimated: it has no weights to begin from" in line
    line = refusal(capsys, "train", text, "--model", "hmm", "--set", "num_states=0")
    assert "num_states must be at least 1" in line


def test_every_row_without_gradients_has_an_estimator():
    """The class says so, too: what must not load the tasks asks the class."""
    for row in registry.ARCHITECTURES.values():
        assert row.load_model().counted == (Estimator.of(row.name) is not None)
