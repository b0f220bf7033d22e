"""Regimes from the command line: runs that go on bit for bit, and what is refused."""

from __future__ import annotations

import json
import math

import pytest
import torch
from helpers_cli import records, refusal
from small_pairs import pairs_of
from training_runs import assert_same, both_ways

from seqgen import store
from seqgen.errors import UsageError
from seqgen.models.inference import HiddenStateModel
from seqgen.settings import REGIMES
from seqgen.settings.training import TrainingConfig
from seqgen.training.events import Notice
from seqgen.training.plan import plan_of
from seqgen.training.resume import resume
from seqgen.training.train import train

REGIME_SETTINGS = {
    "scheduled": {"sampling_decay": "exponential", "sampling_k": 0.99},
    "professor-forcing": {"discriminator_size": 5, "discriminator_lr": 0.05},
    "minimum-risk": {"cost": "edit", "risk_samples": 3},
    "decoding": {"cost": "bleu", "prefix": 2},
}
NEW = [regime for regime in REGIMES if regime != "teacher-forcing"]


@pytest.mark.fast_for("lstm-professor-forcing", "lstm-scheduled")
@pytest.mark.parametrize("regime", NEW)
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_resuming_is_bit_for_bit(name, regime, text):
    """With dropout, in parts, with documents for one of them."""
    more = {"accumulate": 2, "documents": "line"} if name == "transformer" else {"ema": 0.9}
    both_ways(text, name, [3], regime=regime, **more, **REGIME_SETTINGS.get(regime, {}))


@pytest.mark.fast_for("scheduled")
@pytest.mark.parametrize("regime", ["scheduled", "professor-forcing", "minimum-risk"])
def test_resuming_a_translator_is_bit_for_bit(regime, tmp_path):
    tsv = tmp_path / "pairs.tsv"
    tsv.write_text("".join(f"{source}\t{target}\n" for source, target in pairs_of()))
    settings = {"hidden_size": 8, "steps": 5, "seed": 1, "precision": "float32", "batch_size": 6}
    settings |= {"regime": regime, "validate_every": 3, **REGIME_SETTINGS[regime]}
    how = {"architecture": "seq2seq", "settings": settings}
    whole = train([tsv], name="whole", **how)
    train([tsv], name="part", **how, stop_after=2)
    assert resume("part").val_loss == whole.val_loss
    assert_same(store.find("whole"), store.find("part"))


@pytest.mark.slow
def test_resuming_in_bf16_with_a_state_in_bf16(text):
    both_ways(text, "gru", [3], precision="bf16", regime="free-running")


@pytest.mark.fast_for("scheduled", rest="slow")
@pytest.mark.parametrize("regime", ["scheduled", "minimum-risk"])
def test_resuming_with_a_gradient_over_several_windows(regime, text):
    both_ways(text, "gru", [3], k2=14, regime=regime, **REGIME_SETTINGS[regime])


@pytest.mark.fast_for("stops0", rest="slow")
@pytest.mark.parametrize("stops", [[3], [4, 5]])
def test_resuming_through_a_change_of_regime(stops, text):
    schedule = "teacher-forcing:0.5,professor-forcing:0.25,scheduled:0.25"
    both_ways(text, "gru", stops, steps=8, regime_schedule=schedule, discriminator_lr=0.05)


def test_the_discriminator_and_its_optimizer_are_in_the_checkpoint_by_name(text):
    settings = {"hidden_size": 8, "steps": 3, "seed": 1, "precision": "float32", "batch_size": 4}
    settings |= {"regime": "professor-forcing", "discriminator_size": 5}
    train([text], architecture="gru", name="judged", settings=settings)
    tensors, _ = store.find("judged").read_checkpoint()
    names = {name for name in tensors if name.startswith("discriminator")}
    assert {"discriminator.accuracy", "discriminator.read.weight_ih_l0"} <= names
    assert sum(name.startswith("discriminator_optimizer.") for name in names) == 3 * 12
    assert tensors["discriminator_optimizer.0.0.step"] == 3
    assert not any("discriminator" in name for name in store.find("judged").load()[0].state_dict())


@pytest.mark.parametrize("regime", ["professor-forcing", "minimum-risk"])
def test_a_batch_of_labels_alone_has_no_target_and_does_not_end_the_run(regime, tmp_path):
    """Windows of two tokens: the first of each row reads a label and BOS."""
    tsv = tmp_path / "labelled.tsv"
    tsv.write_text("".join(f"{'ab'[n % 2]}\tso it goes {n}\n" for n in range(30)))
    settings = {"labels": True, "hidden_size": 8, "num_layers": 1, "seq_len": 2, "batch_size": 8}
    settings |= {"steps": 3, "seed": 1, "regime": regime, **REGIME_SETTINGS.get(regime, {})}
    result = train([tsv], architecture="gru", name="short", settings=settings)
    assert result.steps == 3 and math.isfinite(result.val_loss)


def test_validation_is_the_plain_loss_whatever_the_regime(text, capsys):
    for regime in ("minimum-risk", "professor-forcing"):
        (record,) = records(
            capsys, "train", text, "--model", "rnn", "--hidden-size", 8, "--steps", 2, "--seed", 1,
            "--regime", regime, "--name", regime, "--precision", "float32",
        )  # fmt: skip
        (scored,) = records(capsys, "perplexity", "-m", regime)
        assert scored["nll_nats"] / scored["tokens"] == pytest.approx(record["val_loss"], rel=1e-6)


@pytest.mark.slow
def test_a_model_that_cannot_write_yet_is_noticed(text):
    settings, events = {"hidden_size": 8, "steps": 1, "val": "none"}, []
    train([text], architecture="rnn", name="base", settings=settings)
    risk = {"regime": "minimum-risk", "cost": "edit", "risk_samples": 1, "steps": 1, "val": "none"}
    later = {"regime_schedule": "teacher-forcing:0.5,decoding:0.5", "steps": 2, "val": "none"}
    for name, more in (("a", risk | settings), ("b", {**risk, "init_from": "base"}), ("c", later)):
        said = []
        train([text], name=name, settings=more, report=said.append)
        events.append([event.text for event in said if isinstance(event, Notice)])
    assert ["--init-from" in " ".join(texts) for texts in events] == [True, False, False]


def test_the_accuracy_is_logged(text, monkeypatch):
    monkeypatch.setattr("seqgen.training.loop.LOG_SECONDS", 0.0)
    settings = {"hidden_size": 8, "steps": 3, "regime": "professor-forcing"}
    train([text], architecture="rnn", name="judged", settings=settings)
    lines = (store.find("judged").path / store.METRICS).read_text().splitlines()
    logged = [r for r in map(json.loads, lines) if "train_loss" in r]
    assert len(logged) == 3
    assert all(0 <= r["figures"]["discriminator_accuracy"] <= 1 for r in logged)


TRAIN = ("train", "TEXT", "--steps", "2", "--hidden-size", "8")
REFUSED = [
    (["--regime", "shceduled"], "did you mean 'scheduled'?"),
    (["--set", "regime_schedule=teacher-forcing:0.5,shceduled:0.5"], "did you mean 'scheduled'?"),
    (["--set", "regime_schedule=teacher-forcing:0.5,scheduled:0.4"], "must add up to 1, not 0.9"),
    (["--set", "regime_schedule=teacher-forcing"], "and at most 1, not 'teacher-forcing'"),
    (["--set", "regime_schedule=scheduled:x"], "and at most 1, not 'scheduled:x'"),
    (
        ["--regime", "decoding", "--set", "regime_schedule=scheduled:1"],
        "give --regime or --set regime_schedule=..., not both",
    ),
    (["--set", "sampling_decay=linear"], "has no meaning without --regime scheduled"),
    (
        ["--regime", "scheduled", "--set", "cost=bleu"],
        "cost has no meaning without --regime minimum-risk or --regime decoding",
    ),
    (["--regime", "decoding", "--set", "risk_samples=2"], "without --regime minimum-risk"),
    (
        ["--regime", "scheduled", "--set", "sampling_decay=exponential", "--set", "sampling_k=2"],
        "sampling_k of this decay must be at most 1, not 2",
    ),
    (
        ["--regime", "scheduled", "--set", "sampling_decay=inverse-sigmoid", "--set",
         "sampling_k=0.5"],
        "must be at least 1, not 0.5",
    ),
    (
        ["--regime", "scheduled", "--set", "sampling_decay=exponential", "--set",
         "sampling_floor=0"],
        "sampling_floor has no meaning without sampling_decay=linear",
    ),
    (["--regime", "minimum-risk", "--set", "cost=blue"], "did you mean 'bleu'?"),
    (["--regime", "free-running", "--set", "prefix=0"], "prefix must be at least 1, not 0"),
    (
        ["--regime", "free-running", "--set", "prefix=6", "--seq-len", "6"],
        "prefix must be smaller than the window, which has 6 tokens (--seq-len), not 6",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "why"), REFUSED)
def test_what_is_refused_in_one_line(arguments, why, text, capsys):
    command = [str(text) if part == "TEXT" else part for part in TRAIN]
    assert why in refusal(capsys, *command, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [["--regime", "scheduled"], ["--regime", "teacher-forcing"], ["--set", "cost=chrf"]],
)
def test_a_counted_model_has_no_regime(arguments, text, capsys):
    wrong = refusal(capsys, "train", text, "--model", "ngram", *arguments)
    if "cost" in arguments[1]:
        assert "cost has no meaning without" in wrong
    else:
        assert wrong.endswith("ngram is counted and not trained by gradients: leave out regime")


def test_a_regime_that_needs_features_refuses_a_model_without(monkeypatch):
    monkeypatch.delattr(HiddenStateModel, "hidden")
    monkeypatch.delattr("seqgen.models.recurrent.equations.RecurrentStack.hidden")
    assert plan_of("lstm", None, {"regime": "scheduled"}, {}, ["regime"])
    with pytest.raises(UsageError, match="professor-forcing needs a model with hidden features"):
        plan_of("lstm", None, {"regime": "professor-forcing"}, {}, ["regime"])


def test_a_resolved_configuration_can_be_given_again(text, capsys):
    """What is left out of other regimes stays out; what a regime has stays complete."""
    for regime in REGIMES:
        config = TrainingConfig(steps=1, regime=regime)
        assert TrainingConfig(**config.to_dict()) == config
    records(capsys, *[text if p == "TEXT" else p for p in TRAIN], "--regime", "decoding",
            "--name", "a")  # fmt: skip
    again = store.find("a").path / "config.json"
    assert json.loads(again.read_text())["training"]["cost"] == "chrf"
    records(capsys, "train", text, "--config", again, "--name", "b")
    one, other = (store.find(name).read_checkpoint()[0] for name in "ab")
    assert all(torch.equal(one[name], other[name]) for name in one)
