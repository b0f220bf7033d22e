"""Settings that follow from the time there is: chosen from a few steps, written down, said."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import NEURAL, VOCAB, first_of_each, over, representatives

from seqgen import registry
from seqgen.errors import SeqgenError
from seqgen.models.recurrent.cells import lstm
from seqgen.models.recurrent.cells.gru import GRUConfig
from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import training_batches
from seqgen.text.corpus import Corpus
from seqgen.text.token_writing import write_token_file
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.training import choosing, speed
from seqgen.training import train as task
from seqgen.training.deadline import Deadline
from seqgen.training.events import Notice

TEXT = "the cat sat on the mat.\n" * 400


def trained(monkeypatch, tmp_path, tokens, data=None, **settings):
    """Train for a moment where minutes are said to be worth so many `tokens`.

    They are for the sizes, the smallest and then from the largest; or by the rows of a step.
    Whether bf16 is faster would take seconds to measure.
    """
    settings = {"precision": "float32", **settings}

    def speed_of(model, batches, training, deadline):
        worth = tokens[training.batch_size] if isinstance(tokens, dict) else tokens.pop(0)
        if isinstance(worth, Exception):
            raise worth
        return {1: worth / (60 * settings["minutes"])}

    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "text.txt").write_text(TEXT)
    notices = []
    monkeypatch.setattr(choosing, "speeds_by_threads", speed_of)
    monkeypatch.setattr(task, "trial_deadline", lambda _: Deadline())
    result = task.train(
        [data or tmp_path / "text.txt"],
        name="x",
        overwrite=True,
        settings=settings,
        report=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
    )
    return json.loads((Path(result.path) / "config.json").read_text()), notices


@pytest.mark.parametrize(
    ("strain", "dropout"), [(0.1, 0.0), (7, 0.0), (14, 0.1), (50, 0.2), (90, 0.3), (1e9, 0.6)]
)
@pytest.mark.parametrize("config_class", [LSTMConfig, TransformerConfig])
def test_dropout_follows_from_passes_and_parameters(config_class, strain, dropout):
    assert config_class.regularised(strain) == {"dropout": dropout}


@pytest.mark.parametrize(
    ("strain", "dropout", "rate"),
    [(7, 0.05, 0.02), (50, 0.1, 0.02), (90, 0.2, 0.02), (1e9, 0.6, 0.02)],
)
def test_an_lstm_over_characters_trades_dropout_for_a_higher_rate(strain, dropout, rate):
    wanted = {"dropout": dropout, "lr": rate}
    assert LSTMConfig.regularised(strain, spelled=True, rate_is_open=True) == wanted
    assert "lr" not in GRUConfig.regularised(strain, spelled=True, rate_is_open=True)


@pytest.mark.parametrize("strain", [0.0, 0.1, 0.99, 1.0, 6.99])
def test_it_learns_faster_as_long_as_it_does_not_overfit(strain):
    faster = {"dropout": 0.0, "head_factor": 2.0}
    if strain < 1:
        rest = {"weight_decay": 0.1, "final_weight_decay": 0.0, "muon_momentum": 0.9}
        faster |= {"head_factor": 4.0, **rest}
    assert LSTMConfig.regularised(strain, spelled=True, rate_is_open=True) == faster
    for where in ({"spelled": False, "rate_is_open": True}, {"spelled": True}):
        assert LSTMConfig.regularised(strain, **where) == {"dropout": 0.0}
    assert GRUConfig.regularised(strain, spelled=True, rate_is_open=True) == {"dropout": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "rate", "dropout"),
    [
        ({}, 2e-2, 0.6),
        ({"lr": 3e-3}, 3e-3, 0.6),
        ({"muon_lr": 3e-2}, 1e-2, 0.6),
        ({"optimizer": "adam"}, 1e-2, 0.6),
        ({"tokenizer": "whitespace"}, 1e-2, 0.6),
        ({"dropout": 0.3}, 2e-2, 0.3),
    ],
)
def test_the_rate_is_high_only_where_it_was_tried(monkeypatch, tmp_path, given, rate, dropout):
    """That is with the recipe's optimizer, and over characters; and it is the user's to give."""
    config, _ = trained(monkeypatch, tmp_path, [1e9] * 2, minutes=0.002, **given)
    assert config["model"]["dropout"] == dropout
    assert config["training"]["lr"] == pytest.approx(rate)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "factor"),
    [({}, 2.0), ({"lr": 1e-2}, 1.0), ({"optimizer": "adam"}, 1.0), ({"head_factor": 3.0}, 3.0)],
)
def test_the_head_learns_faster_only_where_it_was_tried(monkeypatch, tmp_path, given, factor):
    config, _ = trained(monkeypatch, tmp_path, [10.0] * 2, minutes=0.002, **given)
    assert config["training"]["head_factor"] == factor


@pytest.mark.parametrize("name", list(registry.ARCHITECTURES))
def test_a_recipe_has_only_settings_that_there_are(name):
    config_class = registry.architecture(name).load_config()
    assert len({tuple(size.settings) for size in config_class.sizes}) == 1
    assert (config_class.sizes[-1].tokens, config_class.sizes[-1].text) == (0, 0)
    known = {*config_class.fields(), *TrainingConfig.fields()}
    regularised = config_class.regularised(1e9, spelled=True, rate_is_open=True)
    scaled = config_class.sizes[0].settings.keys() | regularised.keys()
    assert scaled | config_class.recipe.keys() <= known


@pytest.fixture
def any_text(monkeypatch):
    """Let no size of an LSTM ask for much text."""
    sizes = tuple(replace(size, text=0.0) for size in LSTMConfig.sizes)
    monkeypatch.setattr(LSTMConfig, "sizes", sizes)


@pytest.mark.slow
def test_a_short_text_gets_a_small_model_and_is_not_gone_over_for_ever(monkeypatch, tmp_path):
    config, _ = trained(monkeypatch, tmp_path, [1e9] * 2, minutes=0.002)
    model, training = config["model"], config["training"]
    assert (model["num_layers"], model["hidden_size"], model["dropout"]) == (2, 128, 0.6)
    assert training["patience"] == 8


@pytest.mark.slow
@pytest.mark.parametrize(("tokens", "said"), [(1.5e6, True), (1.6e6, False)])
def test_n_grams_are_spoken_of_where_there_is_little_time(monkeypatch, tmp_path, tokens, said):
    _, notices = trained(monkeypatch, tmp_path, [tokens] * 2, minutes=0.002)
    assert any("--model ngram" in text for text in notices) is said


@pytest.mark.slow
@pytest.mark.parametrize("given", [{"val": "none"}, {"validate_every": 5}, {"schedule": "wsd"}])
def test_where_validations_say_little_there_is_no_patience(monkeypatch, tmp_path, given):
    config, _ = trained(monkeypatch, tmp_path, [1e9] * 2, minutes=0.002, **given)
    assert config["training"]["patience"] is None


@pytest.mark.slow
def test_a_size_given_in_part_asks_no_more_than_the_default_does(monkeypatch, tmp_path):
    config, _ = trained(monkeypatch, tmp_path, [1e9] * 2, minutes=0.002, hidden_size=128)
    assert config["model"]["num_layers"] == 2


SMALL = {"minutes": 0.002, "num_layers": 1, "hidden_size": 8, "seq_len": 4}


@pytest.mark.fast_for(
    "given0-tokens0-*", "given0-tokens3-*", "given1-tokens4-*", "given1-tokens6-*"
)
@pytest.mark.parametrize(
    ("tokens", "rows"),
    [
        ({32: 5e3}, 32),  # too few steps as it is
        ({32: 1e7, 64: 1.1e7}, 32),  # hardly faster
        ({32: 1e7, 64: 2e7, 128: 2.1e7}, 64),
        ({32: 1e7, 64: 2e7, 128: 3e7}, 128),  # 256 would leave a row but eight windows of text
        ({32: 150e3, 64: 190e3}, 32),  # faster, but too few steps would be left
        ({32: 1e7, 64: torch.OutOfMemoryError("no room")}, 32),
        ({32: 1e7, 64: SeqgenError("training has diverged")}, 32),
    ],
)
@pytest.mark.parametrize("given", [{}, {"lr": 3e-3}])
def test_more_rows_where_they_train_faster(monkeypatch, tmp_path, tokens, rows, given):
    """The rate goes up with the root of the rows, unless it is given."""
    monkeypatch.setattr(lstm, "HIGH_RATE_FROM", math.inf)
    config, _ = trained(monkeypatch, tmp_path, tokens, **SMALL, **given)
    assert config["training"]["batch_size"] == rows
    wanted = given.get("lr", 1e-2 * (rows / 32) ** 0.5)
    assert config["training"]["lr"] == pytest.approx(wanted)


@pytest.mark.parametrize(("given", "rows"), [({}, 32), ({"lr": 3e-3}, 64)])
def test_rows_stay_where_overfitting_raises_the_rate(monkeypatch, tmp_path, given, rows):
    tokens = {32: 1e7, 64: 2e7, 128: 2e7}
    config, _ = trained(monkeypatch, tmp_path, tokens, **SMALL | given)
    assert config["training"]["batch_size"] == rows


def test_one_lucky_second_brings_no_more_rows(monkeypatch, tmp_path):
    """What looks faster is measured once more, in turn with what it is to replace."""
    measured = {32: 0, 64: 0}

    class OneLuckySecond(dict):
        """Twice the rows are twice as fast when they are first tried, and never again."""

        def __getitem__(self, rows):
            measured[rows] += 1
            return 2e7 if (rows, measured[rows]) == (64, 1) else 1e7

    config, _ = trained(monkeypatch, tmp_path, OneLuckySecond(), **SMALL)
    assert config["training"]["batch_size"] == 32


@pytest.mark.parametrize("given", [{"batch_size": 3}, {"accumulate": 2}])
def test_rows_stay_where_something_else_has_settled_them(monkeypatch, tmp_path, given):
    config, _ = trained(monkeypatch, tmp_path, {3: 1e7, 32: 1e7}, **SMALL, **given)
    assert config["training"]["batch_size"] == given.get("batch_size", 32)


@pytest.mark.parametrize("as_tokens", [False, True])
def test_the_rows_of_documents_stay_as_they_are(monkeypatch, tmp_path, as_tokens):
    """Also from a token file, which knows by itself that it holds documents."""
    given, data = {"documents": "line"}, None
    if as_tokens:
        given, data = {}, tmp_path / "text.tok"
        write_token_file(data, [TEXT], CharTokenizer.train([TEXT]), "line")

    class Faster(dict):
        """More rows would be faster."""

        def __getitem__(self, rows):
            return 1e7 * rows

    config, _ = trained(monkeypatch, tmp_path, Faster(), data, **SMALL, **given)
    assert config["data"]["documents"] == "line"
    # As many as make a step of 32 x 4 tokens, a line being longer than that.
    assert config["training"]["batch_size"] == 32


@pytest.mark.slow
@pytest.mark.usefixtures("any_text")
def test_what_is_left_open_is_chosen_beside_what_is_given(monkeypatch, tmp_path):
    config, _ = trained(monkeypatch, tmp_path, [2e6, 1e6, 1e6], minutes=0.002, num_layers=3)
    model = config["model"]
    assert (model["num_layers"], model["hidden_size"], model["dropout"]) == (3, 128, 0.6)


@pytest.mark.slow
def test_sizes_that_what_is_given_does_not_allow_are_left_out(monkeypatch, tmp_path):
    """With weights tied to embeddings of 256 no other size fits, however little time there is."""
    tied = {"tie_weights": True, "embedding_size": 256}
    config, _ = trained(monkeypatch, tmp_path, [1e6] * 9, minutes=0.002, **tied)
    assert config["model"]["hidden_size"] == 256


@pytest.mark.slow
def test_a_budget_in_steps_asks_for_no_measurement(monkeypatch, tmp_path):
    config, _ = trained(monkeypatch, tmp_path, [], steps=1)
    assert (config["model"]["num_layers"], config["model"]["dropout"]) == (2, 0.1)


@pytest.mark.fast_for("rnn-tanh", "lstm-plain", "transformer-default", rest="slow")
@over(representatives(first_of_each(NEURAL)))
def test_every_architecture_can_be_measured(case):
    model = case.build(torch.float32)
    corpus = Corpus(np.arange(40, dtype=np.uint8) % VOCAB, np.array([40]), start=1)
    batches = training_batches(corpus, "stream", model.carries_state, 2, 3, seed=0)
    training = TrainingConfig(minutes=1.0, seq_len=3, batch_size=2, precision="float32")
    assert min(speed.speeds_by_threads(model, batches, training, Deadline()).values()) > 0


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["rnn", "gru", "lstm", "transformer"])
def test_bf16_learns_as_float32_does(architecture, tmp_path, monkeypatch):
    """Step by step the loss curves are nearer to one another than those of two seeds."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("seqgen.training.loop.LOG_SECONDS", 0.0)
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat, and the dog sat on the cat.\n" * 400)

    def curve(precision, seed):
        settings = {"hidden_size": 64, "steps": 120, "seed": seed, "precision": precision}
        task.train([text], architecture=architecture, name="m", overwrite=True, settings=settings)
        lines = (tmp_path / "home" / "models" / "m" / "metrics.jsonl").read_text().splitlines()
        return np.array([r["train_loss"] for r in map(json.loads, lines) if "train_loss" in r])

    wanted = curve("float32", 1)
    assert len(wanted) == 120
    assert wanted[-1] < 0.5 * wanted[0]
    apart = np.abs(curve("bf16", 1) - wanted).mean()
    assert apart < np.abs(curve("float32", 2) - wanted).mean()
