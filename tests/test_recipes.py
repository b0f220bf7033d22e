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
from seqgen.tasks import plan
from seqgen.tasks import train as task
from seqgen.training.events import Notice
from seqgen.training.speed import speed_at_first

TEXT = "the cat sat on the mat.\n" * 400


def trained(monkeypatch, tmp_path, tokens, **settings):
    """Train for a moment where a budget of minutes is said to be worth `tokens`."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "text.txt").write_text(TEXT)
    notices = []
    rate = tokens / (60 * settings["minutes"]) if "minutes" in settings else 0
    monkeypatch.setattr(plan, "speed_at_first", lambda *_: rate)
    result = task.train(
        [tmp_path / "text.txt"],
        name="x",
        settings={"hidden_size": 8, **settings},
        report=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
    )
    return json.loads((Path(result.path) / "config.json").read_text()), notices


@pytest.mark.parametrize(
    ("tokens", "passes", "layers", "dropout"),
    [(5e5, 1, 1, 0.0), (2e6, 2, 2, 0.0), (5e6, 5, 2, 0.1), (14e6, 14, 2, 0.2), (9e7, 90, 2, 0.3)],
)
def test_layers_and_dropout_follow_from_the_time_and_the_text(tokens, passes, layers, dropout):
    recipe = LSTMConfig.suited(tokens, round(tokens / passes))
    assert (recipe["num_layers"], recipe["dropout"]) == (layers, dropout)


@pytest.mark.parametrize("name", list(registry.ARCHITECTURES))
def test_a_recipe_has_only_settings_that_there_are(name):
    config_class = registry.architecture(name).load_config()
    assert config_class.suited(1e7, 10**6).keys() == config_class.scaled
    known = {*config_class.fields(), *TrainingConfig.fields()}
    assert config_class.scaled | config_class.recipe.keys() <= known


def test_what_is_chosen_is_written_down_and_said(monkeypatch, tmp_path):
    config, notices = trained(monkeypatch, tmp_path, 9e5, minutes=0.002)
    assert (config["model"]["num_layers"], config["model"]["dropout"]) == (1, 0.3)
    (said,) = [text for text in notices if "passes" in text]
    passes = r"900,000 tokens, 10\d\.\d passes over the text"
    assert re.search(f"{passes}: num_layers 1, dropout 0.3", said)


def test_what_is_given_stays(monkeypatch, tmp_path):
    given = {"num_layers": 3, "dropout": 0.05}
    config, notices = trained(monkeypatch, tmp_path, 9e5, minutes=0.002, **given)
    assert given.items() <= config["model"].items()
    assert not any("passes" in text for text in notices)


def test_a_budget_in_steps_asks_for_no_measurement(monkeypatch, tmp_path):
    config, _ = trained(monkeypatch, tmp_path, None, steps=1)
    assert (config["model"]["num_layers"], config["model"]["dropout"]) == (2, 0.1)


@over(first_of_each(NEURAL))
def test_every_architecture_can_be_measured(case):
    model = case.build(torch.float32)
    corpus = Corpus(np.arange(40, dtype=np.uint8) % VOCAB, np.array([40]), start=1)
    batches = training_batches(corpus, "stream", model.carries_state, 2, 3, seed=0)
    training = TrainingConfig(minutes=1.0, seq_len=3, batch_size=2, precision="float32")
    assert speed_at_first(model, batches, training) > 0
