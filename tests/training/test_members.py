"""`seqgen train --members`: networks that are trained side by side, and used as one mixture."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
import torch
from helpers_cli import installed, needs, records, refusal
from training_runs import both_ways, corpus_of, run_loop, settings_for

from seqgen import registry, store
from seqgen.cli import run as command
from seqgen.cli.shell.model_facts import describe
from seqgen.errors import Interrupted
from seqgen.models.mixture.fitting import fit_weights
from seqgen.models.mixture.members import Members, build_members
from seqgen.scoring import mixture_fitting as mix
from seqgen.scoring.mixture_fitting import token_log_probs
from seqgen.store import StoredModel
from seqgen.store.loading import Work, load
from seqgen.text.corpus import encode_corpus
from seqgen.training import members, scored_part, with_ngram
from seqgen.training.resume import resume
from seqgen.training.train import train

SEED, STEPS = 3, 4


def network(name, dropout=0.0):
    more = {"num_heads": 2, "window": 5} if name == "transformer" else {}
    row = registry.architecture(name)
    size = {"vocab_size": 20, "hidden_size": 8, "num_layers": 2, "dropout": dropout}
    return row.load_model()(row.load_config()(**size, **more)).double()


@pytest.mark.fast_for("lstm-adamw", "lstm-sgd", "transformer-muon", rest="slow")
@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adamw", "clip_norm": 0.1},  # every gradient is clipped, by its own norm
        {"optimizer": "muon", "ema": 0.9, "accumulate": 2},
        {"optimizer": "sgd", "unfreeze": 0.6, "layer_decay": 0.5, "weight_decay": 0.1},
    ],
    ids=lambda settings: settings["optimizer"],
)
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_each_member_is_trained_as_if_alone(monkeypatch, name, settings):
    """From the seed of its number, on the same batches."""
    corpus = corpus_of(120)
    alone = []
    for number in range(3):
        torch.manual_seed(SEED + number)
        alone.append(network(name))
    together = build_members(lambda: network(name), 3, SEED)
    losses = [run_loop(monkeypatch, one, corpus, **settings)[1] for one in alone]
    trainer, joint = run_loop(monkeypatch, together, corpus, **settings)
    assert isinstance(trainer.threads, members.MemberThreads)
    for one, member in zip(alone, together.components, strict=True):
        for p, q in zip(one.parameters(), member.parameters(), strict=True):
            assert torch.allclose(p, q, rtol=1e-9, atol=1e-12)
    for step, event in enumerate(joint):
        each = [events[step].train_loss for events in losses]
        assert event.train_loss == pytest.approx(sum(each) / 3, abs=1e-9)


@pytest.mark.fast_for("gru", rest="slow")
@pytest.mark.parametrize("name", ["gru", "transformer"])
def test_resuming_is_bit_for_bit(text, tmp_path, monkeypatch, name):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    both_ways(text, name, [2, 5], members=2)


def test_members_draw_apart_and_as_without_threads(monkeypatch):
    """Dropout differs between members with equal weights; threads change nothing."""

    def trained(threads):
        torch.manual_seed(SEED)
        each = [network("lstm", dropout=0.5) for _ in range(2)]
        each[1].load_state_dict(each[0].state_dict())
        if not threads:
            monkeypatch.setattr("seqgen.training.loop.Trainer._threads", lambda trainer: None)
        torch.manual_seed(SEED)
        run_loop(monkeypatch, joint := Members(each), corpus_of(120))
        return [torch.cat([p.flatten() for p in one.parameters()]) for one in joint.components]

    (one, other), alone = trained(True), trained(False)
    assert (one - other).abs().max() > 1e-6
    assert torch.allclose(torch.stack([one, other]), torch.stack(alone), rtol=1e-9, atol=1e-12)


@pytest.fixture
def run(text, tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    settings = settings_for("lstm", members=2, with_ngram=2, val=0.3)
    return train([text], architecture="lstm", name="t", settings=settings)


def column(loaded, text):
    corpus = encode_corpus([text], loaded.tokenizer, "stream", framing=loaded.framing)
    return token_log_probs(loaded.model, corpus)


def test_what_is_stored_is_the_mixture_of_its_members(run, text, capsys):
    """Its figures and probabilities are those of the parts, which lie in its folder."""
    stored = store.find("t")
    held_out = stored.validation_text.read_text()
    shutil.move(stored.path, stored.path.with_name("moved"))
    (mixture,) = (row["mixture"] for row in records(capsys, "models", "show", "moved"))
    assert [part["name"] for part in mixture["parts"]] == ["moved-1", "moved-2", "ngram"]
    first, second, _ = map(load, store.find_all("moved").parts)
    moved, found = store.find("moved"), run.members
    half = held_out[moved.scored_from :]
    each = np.stack([column(one, half) for one in (first, second)], 1)
    assert sum(found["weights"]) == pytest.approx(1)
    assert found["tokens"] == len(each)
    assert found["losses"] == pytest.approx((-each.mean(0)).tolist(), abs=1e-6)
    mixed = np.log(np.exp(each) @ found["weights"])
    assert found["loss"] == pytest.approx(-mixed.mean(), abs=1e-6)
    assert run.val_loss == pytest.approx(-column(load("moved"), half).mean(), abs=1e-6)
    for engine in (load(moved.networks), load(moved.networks, work=Work())):
        assert column(engine, half) == pytest.approx(mixed, abs=1e-5)
    weights = mixture["weights"]
    assert sum(weights) == pytest.approx(1)
    assert weights[0] * found["weights"][1] == pytest.approx(weights[1] * found["weights"][0])


@pytest.mark.parametrize("gated", [False, True])
def test_figures_are_those_of_the_part_that_fitted_nothing(
    text, tmp_path, monkeypatch, capsys, gated
):
    """Without an n-gram model, too; and what fits on that half alone finds the same weights."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(mix, "LEAST_QUARTER", 5)
    monkeypatch.setattr(mix, "LEAST_GATED", 20)
    monkeypatch.setattr(mix, "WORTH_A_GATE", -math.inf if gated else math.inf)
    settings = settings_for("lstm", members=2, val=0.3)
    result = train([text], architecture="lstm", name="t", settings=settings)
    stored, found = store.find("t"), result.members
    held_out = stored.validation_text.read_text()
    assert 0 < stored.scored_from < len(held_out)
    fitted, half = held_out[: stored.scored_from], held_out[stored.scored_from :]
    whole, parts = load("t"), [load(part) for part in store.find_all("t").parts]
    assert bool(whole.stored.gate) == gated == bool(found["gate"])
    if not gated:
        weights, _ = fit_weights(np.stack([column(one, fitted) for one in parts], 1))
        assert found["weights"] == pytest.approx(weights, abs=2e-3)
    assert found["loss"] == result.val_loss
    assert result.val_loss == pytest.approx(-column(whole, half).mean(), abs=1e-6)
    each = [-column(one, half).mean() for one in parts]
    assert found["losses"] == pytest.approx(each, abs=1e-6) and found["tokens"] == len(half)
    assert f"the last {len(half):,} held-out characters" in result.protocol
    (score,) = records(capsys, "perplexity", "-m", "t", "-q")
    assert score["protocol"] == result.protocol
    assert score["characters"] == len(half)
    assert score["nats_per_token"] == pytest.approx(result.val_loss, abs=1e-6)
    assert score["bits_per_char"] == pytest.approx(result.val_bits_per_char, abs=1e-6)
    assert all(one.stored.scored_from == 0 for one in parts)


def test_members_of_a_token_file_without_its_text_have_equal_weights(text, tmp_path, monkeypatch):
    """Nothing is fitted, and so the figure is that of all that is held out."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    words, learned = str(tmp_path / "words.tok"), str(tmp_path / "tokenizer")
    assert command(["tokenize", str(text), "--train", "whitespace", "--out", learned]) == 0
    assert command(["tokenize", str(text), "--tokenizer", learned, "--out", words]) == 0
    settings = settings_for("lstm", members=2, val=words)
    result = train([words], architecture="lstm", name="t", settings=settings)
    assert result.members is None and store.find("t").members == (0.5, 0.5)
    assert store.find("t").scored_from == 0 and "held-out" not in result.protocol


def test_members_are_mixed_by_a_gate_where_it_is_better(text, tmp_path, monkeypatch):
    """Alone and with an n-gram model; what is reported is what the stored models give."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(mix, "LEAST_QUARTER", 5)
    monkeypatch.setattr(mix, "LEAST_GATED", 20)
    monkeypatch.setattr(mix, "WORTH_A_GATE", -math.inf)
    monkeypatch.setattr(with_ngram, "WORTH_KEEPING", -math.inf)
    settings = settings_for("lstm", members=2, with_ngram=2, val=0.3)
    found = train([text], architecture="lstm", name="t", settings=settings)
    held_out = store.find("t").validation_text.read_text()
    stored = store.find("t")
    half = held_out[stored.scored_from :]
    for model, rows in ((stored.networks, 1 + 4), (stored, 2 + 9)):
        engines = [load(model), load(model, work=Work())]
        assert all(len(one.stored.gate) == rows for one in engines)
        first, second = (column(one, held_out) for one in engines)
        assert first == pytest.approx(second, abs=1e-5)
        if model is not stored:
            alone = pytest.approx(-column(engines[0], half).mean(), abs=1e-6)
            assert found.members["loss"] == alone and found.mixture["network_loss"] == alone
    loss = -column(load("t"), half).mean()
    assert found.val_loss == found.mixture["mixture_loss"] == pytest.approx(loss, abs=1e-6)


def test_few_tokens_fit_weights_and_no_gate(text, tmp_path, monkeypatch):
    """Even if a gate looked better: on fewer tokens it was worse on other text."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(mix, "WORTH_A_GATE", -math.inf)
    monkeypatch.setattr(mix, "distributions", lambda *_: pytest.fail("read"))
    found = train([text], architecture="lstm", name="t", settings=settings_for("lstm", members=2))
    assert found.members["gate"] is None and sum(found.members["weights"]) == pytest.approx(1)


def test_a_gate_of_the_members_alone_leaves_the_mixture_as_it_is_reported(
    text, tmp_path, monkeypatch
):
    """Weights beside the n-gram model are those of what is stored, which has no gate then."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(mix, "LEAST_QUARTER", 5)
    monkeypatch.setattr(mix, "LEAST_GATED", 20)
    monkeypatch.setattr(mix, "WORTH_A_GATE", -math.inf)
    settings = settings_for("lstm", members=2, val=0.3, lr=0.05, steps=20)
    alone = train([text], architecture="lstm", name="t", settings=settings)
    monkeypatch.setattr(mix, "WORTH_A_GATE", math.inf)
    monkeypatch.setattr(with_ngram, "WORTH_KEEPING", -math.inf)
    found = resume("t", settings={"with_ngram": 1}).mixture
    counted = store.find("t").ngram.record["parameters"]
    assert describe(store.find("t")).parameters == alone.parameters + counted
    assert alone.members["gate"] and not found["gate"]
    held_out = store.find("t").validation_text.read_text()
    stored = store.find("t")
    half = held_out[stored.scored_from :]
    both, members = column(load("t"), half), column(load(stored.networks), half)
    assert found["weights"][0] > 0.01  # so that the members count
    assert found["mixture_loss"] == pytest.approx(-both.mean(), abs=1e-6)
    assert found["network_loss"] == pytest.approx(-members.mean(), abs=1e-6)


def test_a_run_is_repeated_from_its_configuration(text, tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    settings = settings_for("lstm", members=2)
    one = train([text], architecture="lstm", name="one", settings=settings)
    config = store.find("one").config
    other = train([text], config=config, name="other")
    assert (other.val_loss, other.members) == (one.val_loss, one.members)


def test_an_interrupt_while_weights_are_fitted_says_how_to_resume(text, tmp_path, monkeypatch):
    """And resuming fits them, as if nothing had happened."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    settings = settings_for("lstm", members=2)
    whole = train([text], architecture="lstm", name="whole", settings=settings)

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scored_part, "fit_by_halves", interrupted)
        with pytest.raises(Interrupted, match="resume with: seqgen train --resume t"):
            train([text], architecture="lstm", name="t", settings=settings)
    assert (found := resume("t")).members == whole.members
    assert found.val_loss == whole.val_loss


def test_the_summary_says_what_each_gave(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    small = ["--hidden-size", "8", "--layers", "1", "--steps", "2", "--name", "t", "--members", "2"]
    small += ["--model", "lstm"]
    assert command(["train", str(text), *small]) == 0
    said = capsys.readouterr().err
    for line in ("t-1  ", "t-2  ", "together; each token that it writes takes 2 steps"):
        assert line in said
    assert math.isfinite(store.find("t").record["result"]["members"]["loss"])
    refused = {
        ("export", "t", "--out", "x"): "export takes one network",
        ("train", str(text), "--init-from", "t"): "--init-from takes one network",
        ("mix", "t", "t", "--name", "u"): "mixing takes one network",
        ("vectors", "-m", "t"): "vectors takes one network",
        ("diagnose", str(text), "-m", "t"): "diagnose takes one network",
        ("predict", str(text), "-m", "t"): "predict takes one network",
    }
    for arguments, why in installed(refused).items():
        assert why in refusal(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--model", "ngram"], "is for networks, which ngram is not"),
        pytest.param(["--model", "hmm"], "is for networks, which hmm is not", marks=needs("hmm")),
        (["--model", "seq2seq"], "is for models of text"),
        (["--labels"], "is for models of text"),
        pytest.param(
            ["--regime", "scheduled"], "is for regimes that only read texts", marks=needs("regimes")
        ),
        (["--set", "row_threads=2"], "members are trained a thread each"),
    ],
)
def test_refusals(text, tmp_path, monkeypatch, capsys, arguments, why):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    said = refusal(capsys, "train", str(text), "--members", "2", "--steps", "2", *arguments)
    assert why in said


def test_resuming_takes_one_process(run, monkeypatch, capsys):
    monkeypatch.setattr("seqgen.ranks.world_size", lambda: 2)
    monkeypatch.setattr("seqgen.ranks.broadcast", lambda value: value)
    said = refusal(capsys, "train", "--resume", "t", "--steps", "9")
    assert "--members trains in one process: leave out torchrun" in said


def test_damaged_weights_are_said(run, capsys):
    stored = StoredModel(store.find("t").path)
    config = {**stored.config, "members": {"weights": [1.0]}}
    (stored.path / "manifest.json").unlink()
    (stored.path / store.CONFIG).write_text(json.dumps(config))
    assert "its members have no weights" in refusal(capsys, "sample", "-m", "t")
