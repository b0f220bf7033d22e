"""Mixtures: their arithmetic, their weights by EM, and `-m A+B` in the commands."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from examples import examples
from helpers_cli import records
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.distributions import mix_logits
from seqgen.models.mixture.equations import weighted_sum
from seqgen.models.mixture.fitting import fit_by_order, fit_weights
from seqgen.models.mixture.gate_fitting import PRIOR, GateData, fit_gate
from seqgen.models.mixture.model import Mixture
from seqgen.models.mixture.weights import MixtureWeights
from seqgen.models.ngram.arrays import NGramArrays
from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.models.transformer.model import Transformer
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.scoring import mixture_fitting
from seqgen.scoring.mixture_fitting import fit, rounded
from seqgen.scoring.perplexity import perplexity
from seqgen.store.loading import load
from seqgen.text.corpus import Corpus
from seqgen.training.counting import fit as fit_counts
from seqgen.training.train import train

V = 7
TEXT = "the cat sat on the mat\nthe dog sat on the cat\n\na dog and a cat\nthe mat\n" * 8
HELD_OUT = "the dog sat on a mat\na cat and a dog\n"


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))


def some_mixture(weights=(0.2, 0.5, 0.3)):
    torch.manual_seed(1)
    sizes = {"vocab_size": V, "hidden_size": 8, "num_layers": 1}
    lstm = RecurrentLM(LSTMConfig(**sizes, dropout=0))
    transformer = Transformer(TransformerConfig(**sizes, num_heads=2, window=6, dropout=0))
    parts = [NGram(NGramConfig(vocab_size=V, order=3)), lstm, transformer]
    for parameter in [*lstm.parameters(), *transformer.parameters()]:
        torch.nn.init.normal_(parameter, 0, 0.5)
    mixture = Mixture([part.double().eval() for part in parts], MixtureWeights(weights))
    text = ids(200, seed=9).numpy()
    fit_counts(parts[0], Corpus(text, np.array([text.size]), start=0), [])
    return mixture


def ids(*shape, seed=0):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_probabilities_are_the_weighted_sums():
    mixture, tokens = some_mixture(), ids(3, 6)
    parts = [part(tokens)[0].softmax(-1) for part in mixture.components]
    wanted = 0.2 * parts[0] + 0.5 * parts[1] + 0.3 * parts[2]
    logits, none = mixture(tokens)
    assert none is None
    torch.testing.assert_close(logits.exp(), wanted, rtol=0, atol=1e-12)
    assert mixture.window == 6
    targets = ids(3, 6, seed=1)
    scores, _ = mixture.score(tokens, targets, mixture.start(3), "hits")
    chosen = wanted.gather(-1, targets[..., None]).squeeze(-1)
    torch.testing.assert_close(scores.log_probs.exp(), chosen, rtol=0, atol=1e-12)
    assert torch.equal(scores.hits, wanted.argmax(-1) == targets)


@pytest.mark.slow
@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=examples(30), derandomize=True)
@torch.no_grad()
def test_hits_of_a_mixture_are_those_of_its_distribution(seed):
    """Whatever the weights; among the targets every token that a component would choose."""
    generator = np.random.default_rng(seed)
    mixture = some_mixture(generator.dirichlet([0.7] * 3))
    tokens = ids(4, 30, seed=seed)
    wanted = mixture(tokens, mixture.start(4))[0].exp().argmax(-1)
    favourites = [part(tokens, part.start(4))[0].argmax(-1) for part in mixture.components]
    for targets in (wanted, ids(4, 30, seed=seed + 1), *favourites):
        scores, _ = mixture.score(tokens, targets, mixture.start(4), "hits")
        assert torch.equal(scores.hits, targets == wanted)
        assert scores.ranks is None


@torch.no_grad()
def test_a_mixture_of_n_grams_writes_few_rows_out(monkeypatch):
    """Log-probabilities need no row (V) at all, hits one here and there."""
    generator = np.random.default_rng(1)
    text = generator.zipf(1.4, size=6000) % 2000
    parts = [NGram(NGramConfig(vocab_size=2000, order=order)) for order in (2, 3)]
    for part in parts:
        fit_counts(part, Corpus(text, np.array([text.size]), start=0), [])
    mixture = Mixture([part.double().eval() for part in parts], MixtureWeights([0.4, 0.6]))
    rows = []
    made = NGramArrays.make_rows
    monkeypatch.setattr(
        NGramArrays, "make_rows", lambda self, ids, n: rows.append(n) or made(self, ids, n)
    )
    tokens = torch.from_numpy(text[None, :1000].copy())
    targets = torch.from_numpy(text[None, 1:1001].copy())
    plain, _ = mixture.score(tokens, targets, mixture.start(1))
    assert rows == []
    scores, _ = mixture.score(tokens, targets, mixture.start(1), "hits")
    assert sum(rows) < 400
    logits, _ = mixture(tokens)
    torch.testing.assert_close(plain.log_probs, logits.gather(-1, targets[..., None])[..., 0])
    torch.testing.assert_close(scores.log_probs, plain.log_probs)
    assert torch.equal(scores.hits, logits.argmax(-1) == targets)
    assert scores.hits.any()


@torch.no_grad()
def test_states_of_states_are_split_selected_joined_and_copied():
    mixture, tokens = some_mixture(), ids(2, 15)  # past the transformer's window
    whole, _ = mixture(tokens, mixture.start(2))
    state, seen = mixture.start(2), []
    for piece in tokens.split([1, 4, 2, 8], 1):
        logits, state = mixture(piece, state)
        seen.append(logits)
    torch.testing.assert_close(torch.cat(seen, 1), whole, rtol=0, atol=1e-10)
    kept = state.copy()
    other = mixture(ids(1, 3, seed=4), mixture.start(1))[1]
    joined = type(state).cat([state.select([1, 0]), other])
    more = ids(3, 4, seed=5)
    logits, _ = mixture(more, joined)
    pasts = [tokens[1], tokens[0], ids(1, 3, seed=4)[0]]
    for row, past in enumerate(pasts):
        alone, _ = mixture(torch.cat([past, more[row]])[None], mixture.start(1))
        torch.testing.assert_close(logits[row], alone[0, -4:], rtol=0, atol=1e-10)
    again, _ = mixture(more[[1, 0]], kept)
    torch.testing.assert_close(again, logits[[1, 0]], rtol=0, atol=1e-10)


def test_a_step_is_the_weighted_sum_also_of_what_is_impossible():
    """Against the sum of probabilities by hand; tokens impossible under one part, or under all."""
    generator = np.random.default_rng(2)
    parts = [np.log(generator.dirichlet([1.0] * V, size=3)) + 5 for _ in range(3)]
    parts[0][0, :2] = parts[1][0, 1:3] = -np.inf
    parts[2][0, 1] = -np.inf
    parts[1][1, 4] = -690.0  # no probability in float32
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-6)):
        logits = [part.astype(dtype) for part in parts]
        mixed = mix_logits(logits, np.array([0.2, 0.8, 0.0])[:, None, None])
        assert mixed.dtype == dtype
        each = [np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in parts]
        np.testing.assert_allclose(np.exp(mixed), 0.2 * each[0] + 0.8 * each[1], atol=tolerance)
        assert mixed[0, 1] == -np.inf
        assert np.isfinite(mixed[1:]).all()


def test_the_least_probability_of_a_step():
    """As documented: below the least number of float64 a step has 0, and `score` the number."""
    for nats, kept in ((-740.0, True), (-750.0, False)):
        logits = np.log(np.array([[0.5, 0.5, 1.0]]))
        logits[0, 2] = nats
        even = np.array([0.5, 0.5])[:, None, None]
        assert np.isfinite(mix_logits([logits, logits], even)[0, 2]) == kept
        both = torch.from_numpy(logits)
        assert weighted_sum([both, both], [math.log(0.5)] * 2)[0, 2] == pytest.approx(nats)


def test_a_component_without_weight_has_no_say():
    mixture = some_mixture((0, 1, 0))
    with torch.no_grad():
        lstm = mixture.components[1](ids(2, 5))[0].log_softmax(-1)
        torch.testing.assert_close(mixture(ids(2, 5))[0], lstm)


@given(st.integers(0, 10_000), st.integers(2, 3))
@settings(deadline=None, max_examples=examples(10), derandomize=True)
def test_em_never_gets_worse_and_ends_at_the_best_on_a_grid(seed, parts):
    generator = np.random.default_rng(seed)
    log_probs = torch.from_numpy(np.log(generator.dirichlet([0.5] * 4, size=(80, parts))[..., 0]))
    weights, history = fit_weights(log_probs, tolerance=1e-10, rounds=20_000)
    assert sum(weights) == pytest.approx(1)
    assert all(after >= before - 1e-12 for before, after in itertools.pairwise(history))
    steps = 40
    grid = [
        (i / steps, j / steps, 1 - (i + j) / steps)[:parts]
        if parts == 3
        else (i / steps, 1 - i / steps)
        for i in range(steps + 1)
        for j in range(steps + 1 - i if parts == 3 else 1)
    ]
    best = max(
        (log_probs + torch.tensor(w, dtype=torch.float64).log()).logsumexp(1).mean().item()
        for w in grid
    )
    assert history[-1] >= best - 1e-6


def test_the_weights_of_a_text_that_was_drawn_from_a_mixture():
    generator = np.random.default_rng(0)
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.1, 0.8])
    drawn = generator.choice(3, size=40_000, p=0.3 * p + 0.7 * q)
    weights, _ = fit_weights(torch.from_numpy(np.log(np.stack([p[drawn], q[drawn]], 1))))
    assert weights == pytest.approx([0.3, 0.7], abs=0.02)
    impossible = torch.tensor([[0.0, -math.inf], [-math.inf, -math.inf]], dtype=torch.float64)
    assert fit_weights(impossible)[0] == pytest.approx([1, 0])


def counted(tmp_path, name, architecture="ngram", text=TEXT, **more):
    (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "val.txt").write_text(HELD_OUT)
    more = {"val": str(tmp_path / "val.txt"), **more}
    if architecture == "lstm":
        more |= {"steps": 5, "hidden_size": 8, "num_layers": 1, "seed": 1}
    train([tmp_path / f"{name}.txt"], architecture=architecture, name=name, settings=more)


def test_names_and_weights(tmp_path):
    for name in ("A", "B", "C"):
        counted(tmp_path, name, order=2)
    assert store.find_all("A+B").weights == (0.5, 0.5)
    assert store.find_all("A:0.7+B:0.3").weights == pytest.approx((0.7, 0.3))
    assert store.find_all("A:0.6+B+C").weights == pytest.approx((0.6, 0.2, 0.2))
    assert store.find_all("A:0.7+B").name == "A:0.7+B:0.3"
    by_path = store.find_all(f"{tmp_path}/home/models/A+B")
    assert by_path.name == "A:0.5+B:0.5"
    assert store.find_all("A") == store.find("A")
    for wrong, said in {
        "A:0.7+B:0.7": "sum to 1.4",
        "A:0.2+B:0.2": "sum to 0.4",
        "A:2+B": "from 0 to 1",
        "A+": "A:0.7",
        "+A": "A:0.7",
    }.items():
        with pytest.raises(UsageError, match=said):
            store.find_all(wrong)
    with pytest.raises(SeqgenError, match="there is no model named 'D'"):
        store.find_all("A+D")


def test_what_cannot_be_mixed_says_why(tmp_path):
    counted(tmp_path, "A", order=2)
    counted(tmp_path, "C", order=2, documents="line")
    with pytest.raises(SeqgenError, match="A and C were trained with different --documents"):
        load("A+C")
    with pytest.raises(UsageError, match="give -m A"):
        fit(load("A"), [HELD_OUT])


def test_no_token_to_fit_on_is_said_apart_from_tokens_that_are_impossible():
    with pytest.raises(SeqgenError, match="there is no token to fit weights on"):
        mixture_fitting._fit_parts(np.zeros((0, 2)))
    with pytest.raises(SeqgenError, match="every token is impossible under every part"):
        mixture_fitting._fit_parts(np.full((3, 2), -np.inf))
    one_possible = np.array([[-np.inf, -np.inf], [-np.inf, -1.0]])
    assert mixture_fitting._fit_parts(one_possible)[0] == [0.0, 1.0]


def test_the_fit_is_what_perplexity_then_gives(tmp_path):
    counted(tmp_path, "A", order=3)
    counted(tmp_path, "B", order=3, smoothing="add-delta")
    counted(tmp_path, "C", "lstm")
    mixed, found = fit(load("A+B+C"), [HELD_OUT])
    alone = [perplexity(load(name), [HELD_OUT]).perplexity for name in "ABC"]
    assert found.components == pytest.approx(alone)
    assert found.perplexity <= min(alone) * (1 + 1e-4)
    assert found.perplexity == pytest.approx(perplexity(mixed, [HELD_OUT]).perplexity, rel=1e-6)
    named = load(found.model)
    assert named.stored.name == found.model == mixed.stored.name
    assert perplexity(named, [HELD_OUT]).perplexity == pytest.approx(found.perplexity, rel=1e-6)


def test_a_part_that_one_token_needs_keeps_its_weight(tmp_path, capsys):
    """Only the LSTM knows the second "a": one of 50,001 tokens, so its weight is about 1 / 50,001.

    Then the whole costs log 50,001 for that token, and hardly anything for the others.
    """
    counted(tmp_path, "N", text="ab" * 300, order=2, smoothing="maximum-likelihood", val="none")
    counted(tmp_path, "L", "lstm", text="ab" * 300, val="none")
    text = tmp_path / "text.txt"
    text.write_text("ab" * 12_500 + "a" + "ab" * 12_500)
    (fitted,) = records(capsys, "perplexity", "-m", "L+N", "--fit", text, "-q")
    assert 0.5 / 50_001 < fitted["weights"][0] < 2 / 50_001
    assert sum(fitted["weights"]) == pytest.approx(1, abs=1e-9)
    assert 0 < fitted["perplexity"] - 1 < 2 * (math.log(50_001) + 1) / 50_001
    (scored,) = records(capsys, "perplexity", text, "-m", fitted["model"], "-q")  # typed again
    assert scored["perplexity"] == pytest.approx(fitted["perplexity"], rel=1e-6)
    for by in ((), ("--by", "order")):
        (mixed,) = records(
            capsys, "mix", "L", "N", "--name", "M", "--fit", text, *by, "--overwrite"
        )
        assert all(min(row) > 0 for row in mixed["by_order"] or [mixed["weights"]])
        assert mixed["nll_nats"] == pytest.approx(scored["nll_nats"], rel=0.01)
    assert run(["models", "show", "M"]) == 0
    assert f"L:{mixed['weights'][0]:.3g} + N:" in capsys.readouterr().out  # not 0.0000


def test_given_weights_that_leave_a_token_impossible_are_stored(tmp_path, capsys):
    counted(tmp_path, "N", order=6, smoothing="maximum-likelihood")
    counted(tmp_path, "L", "lstm")
    (mixed,) = records(capsys, "mix", "L", "N", "--name", "M", "--weights", "0,1")
    assert mixed["nll_nats"] is None  # infinite
    (row,) = (row for row in records(capsys, "models") if row["name"] == "M")
    assert row["val_bits_per_char"] is None


def test_weights_are_rounded_but_none_that_is_needed_is_lost():
    assert rounded([0.123456, 0.876544], 100) == [0.1235, 0.8765]
    assert rounded([1.23456e-5, 1 - 1.23456e-5], 100_000) == [1.235e-5, 0.99998765]
    assert rounded([3e-9, 1 - 3e-9], 100_000) == [0.0, 1.0]  # less than one token's share of it
    assert rounded([3e-9, 1 - 3e-9], 300_000_000) == [3e-9, 1 - 3e-9]
    assert sum(rounded([1 / 7] * 7, 100)) == pytest.approx(1, abs=1e-11)


def test_the_fit_heeds_the_stride(tmp_path, capsys):
    """What it says of each part is what perplexity finds with that stride."""
    data, text = tmp_path / "data.txt", tmp_path / "text.txt"
    data.write_text(TEXT)
    text.write_text(HELD_OUT)
    how = ("--heads", 2, "--hidden-size", 8, "--layers", 1, "--seq-len", 8, "--steps", 30, "-q")
    train = ("train", data, "--model", "transformer", "--seed", 1, "--lr", 0.05, *how)
    records(capsys, *train, "--name", "T")
    records(capsys, "train", data, "--model", "ngram", "--name", "N", "-q")
    found = {}
    for stride in (1, 8):
        more = ("--stride", stride, "-q")
        (fitted,) = records(capsys, "perplexity", "-m", "T+N", "--fit", text, *more)
        (alone,) = records(capsys, "perplexity", text, "-m", "T", *more)
        assert fitted["components"][0] == pytest.approx(alone["perplexity"], rel=1e-6)
        found[stride] = fitted["components"][0]
    assert found[1] != pytest.approx(found[8], rel=1e-4)


def test_the_commands(tmp_path, capfd):
    counted(tmp_path, "A", order=4)
    counted(tmp_path, "B", "lstm")
    assert run(["perplexity", "-m", "A+B", "--fit", str(tmp_path / "val.txt"), "-q"]) == 0
    spec = capfd.readouterr().out.strip()
    assert spec.startswith("A:0.") and "+B:" in spec
    assert run(["perplexity", "-m", spec, "--json", "-q"]) == 0  # the held-out text of both
    record = json.loads(capfd.readouterr().out)
    assert record["model"] == spec
    assert run(["perplexity", "-m", "A+B", "--fit", str(tmp_path / "val.txt"), "--json", "-q"]) == 0
    fitted = json.loads(capfd.readouterr().out)
    assert fitted["model"] == spec
    assert fitted["perplexity"] == pytest.approx(record["perplexity"], rel=1e-6)
    for flags in (["-m", spec], ["-m", spec, "--batch-size", "1"]):
        assert run(["sample", *flags, "--num-samples", "3", "--seed", "4", "--json", "-q"]) == 0
        lines = capfd.readouterr().out.splitlines()
        assert [json.loads(line)["model"] for line in lines] == [spec] * 3
    text = tmp_path / "s.txt"
    first = json.loads(lines[0])
    text.write_text(first["text"])
    assert run(["perplexity", str(text), "-m", spec, "--json", "-q"]) == 0
    scored = json.loads(capfd.readouterr().out)
    # Decoding's log-probabilities leave out what can never be written.
    assert scored["nll_nats"] == pytest.approx(-first["logprob"], rel=0.05)
    assert run(["perplexity", "-m", "A", "--fit", str(text)]) == 2


def by_order(table, order=3, length=300, gate=()):
    """Return a mixture that depends on the order matched, and the text it was counted in."""
    torch.manual_seed(2)
    text = ids(length, seed=9)
    ngram, lstm = NGram(NGramConfig(vocab_size=V, order=order)), some_mixture().components[1]
    fit_counts(ngram, Corpus(text.numpy(), np.array([length]), start=0), [])
    return Mixture([lstm, ngram.double().eval()], MixtureWeights([0.5, 0.5], table, gate)), text


TABLE = [[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]]


# Of two parts and three orders.
GATE = np.random.default_rng(4).normal(0.3, 0.3, (3 + 4, 2))


@torch.no_grad()
def test_weights_by_order_sum_to_one_after_every_past():
    """The order matched is found by hand: the longest end of the past that the text has."""
    mixture, text = by_order(TABLE, length=25)
    seen = {tuple(text[i:j].tolist()) for i in range(25) for j in range(i + 1, i + 3)}
    seen |= {(w,) for w in range(V)} | {(0, *text[:1].tolist())}  # the text starts after a 0
    tokens = ids(6, 20, seed=3)
    logits, _ = mixture(tokens, mixture.start(6))
    parts = [part(tokens, part.start(6))[0].softmax(-1) for part in mixture.components]
    orders = set()
    for row, t in itertools.product(range(6), range(20)):
        past = tuple(tokens[row, : t + 1].tolist())
        order = max((n for n in (1, 2) if past[-n:] in seen and n <= len(past)), default=0)
        orders.add(order)
        wanted = sum(w * part[row, t] for w, part in zip(TABLE[order], parts, strict=True))
        torch.testing.assert_close(logits[row, t].exp(), wanted, rtol=0, atol=1e-12)
    assert orders == {1, 2}
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(6, 20).double())


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("order", [1, 3])
@torch.no_grad()
def test_mixtures_by_order_in_every_way_of_reading(order, gated):
    tables = (
        ((), order, 300, np.concatenate([GATE[:order], GATE[3:]]))
        if gated
        else (TABLE[:order], order)
    )
    mixture, _ = by_order(*tables)
    tokens, targets = ids(4, 12, seed=5), ids(4, 12, seed=6)
    wanted, _ = mixture(tokens, mixture.start(4))
    assert mixture.normalised != gated
    state = mixture.start(4)
    for t, column in enumerate(tokens.T.tolist()):
        logits, state = mixture.step(column, state)
        torch.testing.assert_close(torch.from_numpy(logits), wanted[:, t])
        state = state.select([0, 1, 2, 3]) if t % 2 else state.copy()
    last, _ = mixture(tokens, mixture.start(4), last=2)
    torch.testing.assert_close(last, wanted[:, -2:])
    chosen = wanted.log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1)
    for want in ("log_probs", "hits", "ranks"):
        scores, _ = mixture.score(tokens, targets, mixture.start(4), want)
        torch.testing.assert_close(scores.log_probs, chosen)
        if want != "log_probs":
            assert torch.equal(scores.hits, targets == wanted.argmax(-1))
    fresh, _ = by_order(*tables)  # no step has been taken
    guide = fresh.components[1]
    _, state = guide(tokens, guide.start(4))
    matched = guide.matched(tokens, guide.start(4))[:, -1].tolist()
    assert guide.matched_by(state).tolist() == matched
    guide.step([1] * 4, guide.start(4))
    assert guide.matched_by(state).tolist() == matched


def test_weights_by_order_are_the_best_of_all_on_a_grid():
    """Every pair of weights for two orders, by brute force."""
    generator = np.random.default_rng(7)
    log_probs = torch.from_numpy(np.log(generator.dirichlet([0.5] * 3, size=(40, 2))[..., 0]))
    matched = torch.from_numpy(generator.integers(0, 2, size=40))
    table = torch.tensor(fit_by_order(log_probs, matched, 2, [0.5, 0.5], least=1))

    def value(first, second):
        weights = torch.tensor([[first, 1 - first], [second, 1 - second]]).double()
        return (log_probs + weights[matched].log()).logsumexp(1).mean().item()

    grid = np.arange(0, 1.0001, 0.02)
    best = max(itertools.product(grid, grid), key=lambda pair: value(*pair))
    assert value(table[0, 0], table[1, 0]) >= value(*best) - 1e-7
    assert table[:, 0].tolist() == pytest.approx(best, abs=0.021)
    # Without enough tokens of an order, what holds for all contexts is taken.
    assert fit_by_order(log_probs, matched, 3, [0.2, 0.8], least=1)[2] == [0.2, 0.8]
    assert fit_by_order(log_probs, matched, 2, [0.2, 0.8]) == [[0.2, 0.8]] * 2


@pytest.mark.parametrize("gated", [False, True])
@torch.no_grad()
def test_steps_in_float32_are_those_of_calls_with_and_without_the_library(gated, monkeypatch):
    mixture, _ = by_order((), length=300, gate=GATE) if gated else by_order(TABLE)
    weights = MixtureWeights([1, 1], *tables_of(mixture))
    mixture = Mixture([part.float() for part in mixture.components], weights)
    tokens = ids(4, 12, seed=5)
    wanted, _ = mixture(tokens, mixture.start(4))
    for alone in (False, True):
        if alone:
            monkeypatch.setattr("seqgen.engines.native.mixing.library", lambda: None)
        state = mixture.start(4)
        for t, column in enumerate(tokens.T.tolist()):
            logits, state = mixture.step(column, state)
            assert logits.dtype == np.float32
            np.testing.assert_allclose(logits, wanted[:, t], rtol=0, atol=2e-5)


def tables_of(mixture):
    """Return the weights by order and the gate that a mixture was made with."""
    if mixture.gate is None:
        return mixture.table.T, ()
    return (), np.concatenate([mixture.gate.constants, mixture.gate.coefficients])


@torch.no_grad()
def test_a_gate_multiplies_powers_of_the_probabilities():
    """Each distribution by hand; also where a part rules a token out."""
    mixture, _ = by_order((), length=25, gate=GATE)
    with torch.no_grad():
        mixture.components[0].head.bias[2] = -math.inf
    tokens = ids(6, 20, seed=3)
    logits, _ = mixture(tokens, mixture.start(6))
    parts = [part(tokens, part.start(6))[0].log_softmax(-1).numpy() for part in mixture.components]
    matched = mixture.components[1].matched(tokens, None).numpy()
    assert set(matched.ravel()) == {1, 2}
    for row, t in itertools.product(range(6), range(20)):
        each = [[max(x, -20.0) for x in part[row, t]] for part in parts]
        exponents = GATE[matched[row, t]].copy()
        for number, (one, other) in enumerate(itertools.product(each, each)):
            mean = sum(math.exp(x) * y for x, y in zip(one, other, strict=True))
            exponents += mean * GATE[3 + number]
        first, second = exponents
        powers = [math.exp(first * x + second * y) for x, y in zip(*each, strict=True)]
        wanted = torch.from_numpy(np.array(powers) / sum(powers))
        torch.testing.assert_close(logits[row, t].softmax(-1), wanted, rtol=0, atol=1e-12)


def some_contexts(count=300, orders=2):
    """Return contexts of two parts, the second of which knows more after order 1."""
    generator = np.random.default_rng(8)
    each = generator.dirichlet([0.6] * V, size=(count, 2))
    matched = np.arange(count) % orders
    tokens = [generator.choice(V, p=each[n, order]) for n, order in enumerate(matched)]
    return GateData(np.log(each), np.array(tokens), matched, orders)


def nats_of(contexts, table):
    """The nats of tokens under a gate (F, K), as a tensor, from its definition."""
    each = torch.from_numpy(contexts.log_probs).clamp(min=-20)
    means = torch.einsum("njv,nkv->njk", each.exp(), each).flatten(1)
    exponents = torch.cat([torch.ones(len(each), 1).double(), means], 1) @ table
    log_probs = torch.einsum("nk,nkv->nv", exponents, each).log_softmax(-1)
    return -log_probs[range(len(each)), contexts.tokens].sum()


def test_a_gate_is_fitted_to_the_minimum():
    """Where automatic differentiation finds no slope, of the nats and the prior together."""
    contexts = some_contexts(orders=1)
    table = torch.tensor(fit_gate(contexts), dtype=torch.float64, requires_grad=True)
    believed = torch.zeros_like(table)
    believed.data[0] = 0.5
    prior = PRIOR / 2 * ((table - believed) ** 2).sum()
    (slope,) = torch.autograd.grad(nats_of(contexts, table) + prior, table)
    assert slope.abs().max() < 0.02
    assert contexts.nats(table.detach().numpy()) == pytest.approx(
        nats_of(contexts, table).item(), rel=1e-9
    )


def test_a_gate_trusts_the_part_that_knows_more_after_an_order():
    contexts = some_contexts(4000)
    table = np.array(fit_gate(contexts))
    assert contexts.nats(table) < contexts.nats(table[[1, 0, 2, 3, 4, 5]]) - 500
    contexts.matched[:] = 0  # no token of order 1: what holds for all
    constants = fit_gate(contexts)[:2]
    assert constants[0] == pytest.approx(constants[1], abs=0.05)
