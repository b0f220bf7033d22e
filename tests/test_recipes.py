"""Settings that follow from the time there is: chosen from a few steps, written down, said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import NEURAL, VOCAB, first_of_each, over

from seqgen import registry
from seqgen.configs import TrainingConfig
from seqgen.data.batches import training_batches
from seqgen.data.corpus import Corpus
from seqgen.models.lstm import LSTMConfig
from seqgen.models.transformer import TransformerConfig
from seqgen.tasks import plan
from seqgen.tasks import train as task
from seqgen.training.events import Notice
from seqgen.training.speed import speed_at_first

TEXT = "the cat sat on the mat.\n" * 400


def trained(monkeypatch, tmp_path, tokens, **settings):
    """Train for a moment where minutes are said to be worth so many `tokens`, a size a time."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "text.txt").write_text(TEXT)
    notices = []
    monkeypatch.setattr(
        plan, "speed_at_first", lambda *_: tokens.pop(0) / (60 * settings["minutes"])
    )
    result = task.train(
        [tmp_path / "text.txt"],
        name="x",
        settings=settings,
        report=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
    )
    return json.loads((Path(result.path) / "config.json").read_text()), notices


@pytest.mark.parametrize(
    ("strain", "dropout"), [(0.1, 0.0), (7, 0.0), (14, 0.1), (50, 0.2), (90, 0.3)]
)
@pytest.mark.parametrize("config_class", [LSTMConfig, TransformerConfig])
def test_dropout_follows_from_passes_and_parameters(config_class, strain, dropout):
    assert config_class.regularised(strain) == {"dropout": dropout}


@pytest.mark.parametrize("name", list(registry.ARCHITECTURES))
def test_a_recipe_has_only_settings_that_there_are(name):
    config_class = registry.architecture(name).load_config()
    assert len({tuple(size) for size in config_class.sizes}) == 1
    known = {*config_class.fields(), *TrainingConfig.fields()}
    scaled = config_class.sizes[0].keys() | config_class.regularised(1.0).keys()
    assert scaled | config_class.recipe.keys() <= known


SIZES = [(size["num_layers"], size["hidden_size"]) for size in LSTMConfig.sizes]


@pytest.mark.parametrize("fitting", [*SIZES, None])
def test_the_largest_size_that_the_time_is_enough_for(monkeypatch, tmp_path, fitting):
    """Smaller ones are not even measured; where none fits it is the smallest."""
    place = SIZES.index(fitting) if fitting else len(SIZES)
    tokens = [1.5e6] * place + [1.7e6] * (len(SIZES) - place)
    config, notices = trained(monkeypatch, tmp_path, tokens, minutes=0.002)
    chosen = config["model"]["num_layers"], config["model"]["hidden_size"]
    assert chosen == (fitting or SIZES[-1])
    assert len(tokens) == max(0, len(SIZES) - place - 1)
    (said,) = [text for text in notices if "passes" in text]
    start = f"lstm with num_layers {chosen[0]}, hidden_size {chosen[1]}, dropout 0.3, so that "
    assert re.match(rf"{start}1,[57]00,000 tokens, 1[79]\d\.\d passes", said)


def test_what_is_given_stays(monkeypatch, tmp_path):
    given = {"num_layers": 3, "hidden_size": 8, "dropout": 0.05}
    config, notices = trained(monkeypatch, tmp_path, [], minutes=0.002, **given)
    assert given.items() <= config["model"].items()
    assert not any("passes" in text for text in notices)


def test_what_is_left_open_is_chosen_beside_what_is_given(monkeypatch, tmp_path):
    config, _ = trained(monkeypatch, tmp_path, [1e6, 1e6, 2e6], minutes=0.002, num_layers=3)
    model = config["model"]
    assert (model["num_layers"], model["hidden_size"], model["dropout"]) == (3, 128, 0.3)


def test_sizes_that_what_is_given_does_not_allow_are_left_out(monkeypatch, tmp_path):
    """Neither is one measured twice: with a size given only dropout is open."""
    tied = {"tie_weights": True, "embedding_size": 256}
    config, _ = trained(monkeypatch, tmp_path, [1e6], minutes=0.002, **tied)
    assert config["model"]["hidden_size"] == 256


def test_a_budget_in_steps_asks_for_no_measurement(monkeypatch, tmp_path):
    config, _ = trained(monkeypatch, tmp_path, [], steps=1)
    assert (config["model"]["num_layers"], config["model"]["dropout"]) == (2, 0.1)


@over(first_of_each(NEURAL))
def test_every_architecture_can_be_measured(case):
    model = case.build(torch.float32)
    corpus = Corpus(np.arange(40, dtype=np.uint8) % VOCAB, np.array([40]), start=1)
    batches = training_batches(corpus, "stream", model.carries_state, 2, 3, seed=0)
    training = TrainingConfig(minutes=1.0, seq_len=3, batch_size=2, precision="float32")
    assert speed_at_first(model, batches, training) > 0


@pytest.mark.slow
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
