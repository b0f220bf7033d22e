"""What is chosen against overfitting is chosen again for the speed that training has."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from seqgen import store
from seqgen.engines.dropout import Dropout
from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.models.transformer.model import Transformer
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.settings.training import TrainingConfig
from seqgen.training import choosing, loop
from seqgen.training.events import Notice
from seqgen.training.regularising import Regularisation, take_dropout
from seqgen.training.resume import resume
from seqgen.training.train import train

BUDGET = {"minutes": 1.0, "precision": "float32", "seq_len": 32, "batch_size": 8, "seed": 1}
SMALL = {"hidden_size": 16, "num_layers": 1}
TICK = 0.3  # seconds of the clock below


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("so it goes on and on and ends\n" * 40)
    return path


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Every look at it takes a moment, so that a budget of time has the same steps every time."""
    ticks = itertools.count()
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: TICK * next(ticks)))


def measured(monkeypatch, tokens):
    """Have the trial before the start find that the budget is enough for so many tokens."""
    speeds = {1: tokens / (60 * BUDGET["minutes"])}
    monkeypatch.setattr(choosing.SpeedTrial, "known_speeds", speeds)


def trained(text, stop_after=None, **settings):
    notices = []
    train(
        [text],
        architecture="lstm",
        name="x",
        overwrite=True,
        settings={**BUDGET, **SMALL, **settings},
        report=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
        stop_after=stop_after,
    )
    return chosen(), [notice for notice in notices if "from here on" in notice]


def chosen():
    config = store.find("x").config
    training = config["training"]
    assert training["head_factor"] == 1 + (training["lr"] == 0.01)  # one of them is doubled
    return config["model"]["dropout"], training["lr"], training["patience"]


def test_a_run_that_is_slower_than_the_trial_ends_as_one_that_knew(text, monkeypatch):
    measured(monkeypatch, 1e7)
    at_first, _ = trained(text, stop_after=1)
    assert at_first == (0.6, 0.02, 8)
    wrong, said = trained(text)
    run = store.find("x").read_checkpoint()[1]["run"]
    measured(monkeypatch, run["tokens"])
    right, silent = trained(text)
    assert wrong == right
    assert wrong[0] < 0.6
    assert len(said) == 1
    assert said[0].startswith(f"dropout {right[0]:g}")
    assert silent == []


def test_a_run_that_is_faster_than_the_trial_gets_dropout(text, monkeypatch):
    measured(monkeypatch, 10)
    assert trained(text, stop_after=1)[0] == (0.0, 0.01, None)
    (dropout, rate, _), said = trained(text)
    assert dropout > 0
    assert rate == 0.02
    assert said


def test_a_short_run_keeps_what_the_trial_found(text, monkeypatch):
    measured(monkeypatch, 1e7)
    assert trained(text, minutes=0.4) == ((0.6, 0.02, 8), [])


def test_what_is_given_stays(text, monkeypatch):
    measured(monkeypatch, 1e7)
    assert trained(text, dropout=0.5, lr=0.003, patience=3) == ((0.5, 0.003, 3), [])


def test_a_resumed_run_has_the_settings_and_chooses_none_twice(text, monkeypatch):
    measured(monkeypatch, 1e7)
    wrong, _ = trained(text, stop_after=1)
    place = store.find("x")
    assert place.read_checkpoint()[1]["run"]["revised"] == 0
    said = []

    def report(event):
        if isinstance(event, Notice) and "from here on" in event.text:
            said.append(event.text)

    resume("x", stop_after=25, report=report)
    assert chosen() != wrong
    assert said
    assert place.read_checkpoint()[1]["run"]["revised"] == 2
    before = chosen(), list(said)
    resume("x", report=report)
    assert (chosen(), said) == before


@pytest.mark.parametrize(
    "model",
    [
        RecurrentLM(LSTMConfig(vocab_size=5, output_dropout=0.2, num_layers=2, hidden_size=4)),
        Transformer(TransformerConfig(vocab_size=5, window=4, hidden_size=4, num_heads=1)),
    ],
    ids=["lstm", "transformer"],
)
def test_a_model_takes_dropout_as_if_it_were_built_with_it(model):
    take_dropout(model, 0.3)
    assert model.config.dropout == 0.3

    def rates(network):
        return {name: p.p for name, p in network.named_modules() if isinstance(p, Dropout)}

    assert rates(model) == rates(type(model)(model.config))
    assert 0.3 in rates(model).values()


def test_only_what_changes_is_named():
    model = RecurrentLM(LSTMConfig(vocab_size=5, hidden_size=4, num_layers=1, dropout=0.1))
    rule = Regularisation(left_open=["dropout", "lr", "patience"], lr=0.014, spelled=True)
    same = TrainingConfig(steps=1, lr=0.02)
    assert rule.changes(model, same, 60) == ({}, {})
    assert rule.changes(model, same, 300) == ({"dropout": 0.4}, {"patience": 8})
    assert rule.changes(model, same, 1) == ({"dropout": 0.0}, {"lr": 0.014})
