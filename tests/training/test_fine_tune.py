"""`--init-from`: a new model begins with another's weights, tokens and shape."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from helpers_cli import has_plugin, known_architectures
from safetensors.torch import load_file

from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError
from seqgen.store.loading import load
from seqgen.training.events import Notice
from seqgen.training.fine_tune import InitialModel
from seqgen.training.session import Session
from seqgen.training.train import train

SETTINGS = {"seed": 3, "precision": "float32", "batch_size": 3}
SHAPE = {"hidden_size": 8, "num_layers": 2, "seq_len": 6}


@pytest.fixture
def texts(tmp_path) -> tuple[Path, Path]:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text("so it goes on and on, and it ends so.\n" * 20)
    second.write_text("on it goes, and so on it ends! it ends.\n" * 20)
    return first, second


def weights(name):
    return load_file(store.find(name).path / store.WEIGHTS)


def tuned(text, name="tuned", **settings):
    report = settings.pop("report", lambda event: None)
    settings = {**SETTINGS, "init_from": "base", "steps": 4, "val": "none", **settings}
    return train([text], name=name, settings=settings, report=report)


@pytest.mark.fast_for("rnn", "lstm", "window")
@pytest.mark.parametrize(
    "architecture", known_architectures(["rnn", "gru", "lstm", "transformer", "window"])
)
def test_training_begins_where_the_other_model_ended(architecture, texts):
    known = {"window": {"hidden_size": 8, "seq_len": 6}, "transformer": {**SHAPE, "num_heads": 2}}
    shape = known.get(architecture, SHAPE)
    settings = {**SETTINGS, **shape, "steps": 3}
    train([texts[0]], architecture=architecture, name="base", settings=settings)
    events = []
    tuned(texts[1], lr=1e-30, muon_lr=1e-30, weight_decay=0.0, report=events.append)
    base, new = weights("base"), weights("tuned")
    assert all(torch.equal(base[name], new[name]) for name in base)
    config, of_base = store.find("tuned").config, store.find("base").config
    assert config["architecture"] == architecture
    assert config["model"] == of_base["model"]
    assert config["training"]["seq_len"] == 6
    assert load("tuned").tokenizer.facts() == load("base").tokenizer.facts()
    # The exclamation mark is none of the first text's characters.
    unknown, *warnings = [event.text for event in events if isinstance(event, Notice)]
    assert unknown == "base does not know 20 tokens of the text"
    if has_plugin("inspect"):
        (rate,) = warnings
        assert rate.startswith("warning: the learning rate is too low")


@pytest.fixture
def base(texts):
    train([texts[0]], name="base", settings={**SETTINGS, **SHAPE, "steps": 3})
    return store.find("base")


@pytest.mark.parametrize("lora", [None, 2])
def test_training_holds_one_copy_of_the_weights(lora, base, texts, monkeypatch):
    """Not those of the model it began from, nor those laid out to write samples."""
    origins, trained = [], []
    load_origin, show = InitialModel.load, Session._show_sample
    monkeypatch.setattr(
        InitialModel, "load", lambda *given: origins.append(load_origin(*given)) or origins[0]
    )

    def shown(self, *about):
        show(self, *about)
        assert all(p.is_meta for p in origins[0].model.parameters())
        trained.append("_prepared" in vars(self.loaded.model))

    monkeypatch.setattr(Session, "_show_sample", shown)
    tuned(texts[1], lora=lora)
    assert trained == [False, False]


def test_frozen_layers_stay(base, texts):
    """Two of four groups join in the first half; the others are never reached."""
    tuned(texts[1], unfreeze=1.0, steps=2, lr=0.1, weight_decay=0.0)
    before, after = weights("base"), weights("tuned")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {n for n in before if n.startswith(("layers.1.", "head."))}


def test_dropout_and_training_are_free(base, texts):
    tuned(texts[1], dropout=0.4, seq_len=12, optimizer="sgd", documents="line")
    config = store.find("tuned").config
    assert config["model"]["dropout"] == 0.4
    assert config["training"]["lr"] == 0.5  # what suits sgd
    assert config["data"]["documents"] == "line"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"hidden_size": 8}, "hidden_size is fixed by --init-from: base has its own"),
        ({"num_layers": 3}, "num_layers is fixed"),
        ({"tokenizer": "byte"}, "tokenizer is fixed"),
        ({"vocab_size": 9}, "vocab_size is fixed"),
    ],
)
def test_architecture_and_tokenizer_are_fixed(more, message, base, texts):
    with pytest.raises(UsageError, match=message):
        tuned(texts[1], **more)
    assert not (store.models_folder() / "tuned").exists()


def test_another_architecture_is_wrong_usage(base, texts):
    settings = {"init_from": "base", "steps": 1}
    with pytest.raises(
        UsageError, match="--model is fixed by --init-from: the architecture of base is lstm"
    ):
        train([texts[1]], architecture="lstm", settings=settings)
    with pytest.raises(UsageError, match="the architecture of base is lstm, not gru"):
        train([texts[1]], config={"architecture": "gru"}, settings=settings)
    with pytest.raises(UsageError, match="hidden_size is 8 in base, not 9"):
        train([texts[1]], config={"model": {"hidden_size": 9}}, settings=settings)


def test_a_longer_window_than_the_transformers_is_wrong_usage(texts):
    shape = {**SHAPE, "num_heads": 2}
    settings = {**SETTINGS, **shape, "steps": 1}
    train([texts[0]], architecture="transformer", name="base", settings=settings)
    with pytest.raises(UsageError, match="--seq-len must be at most the window of base, 6"):
        tuned(texts[1], seq_len=7)
    tuned(texts[1], seq_len=5)


def test_what_cannot_be_begun_from(texts):
    with pytest.raises(SeqgenError, match="there is no model named 'base'"):
        tuned(texts[1])
    train([texts[0]], architecture="ngram", name="base", settings={"order": 2})
    with pytest.raises(SeqgenError, match="base was counted: it has no weights"):
        tuned(texts[1])


def test_a_models_configuration_trains_it_again(base, texts):
    """`--config` of a fine-tuned model gives the same weights, and of its base too."""
    tuned(texts[1], ema=0.5, accumulate=2)
    for name, text in (("base", texts[0]), ("tuned", texts[1])):
        config = json.loads((store.find(name).path / store.CONFIG).read_text())
        train([text], name=f"{name}-again", config=config)
        first, second = weights(name), weights(f"{name}-again")
        assert first.keys() == second.keys()
        assert all(torch.equal(first[n], second[n]) for n in first)
        again = store.find(f"{name}-again").config
        assert again == config


@pytest.mark.fast_for("rnn-*")
@pytest.mark.parametrize("budget", [{"steps": 5}, {"epochs": 0.4}])
@pytest.mark.parametrize("architecture", ["rnn", "transformer"])
def test_the_resolved_configuration_gives_the_same_weights(architecture, budget, texts, tmp_path):
    more = {"optimizer": "adam", "schedule": "wsd", "documents": "line", "clip_norm_type": "inf"}
    settings = {"hidden_size": 8, "num_layers": 1, "precision": "float32", **more, **budget}
    # Neither the seed nor the batch size is given: both are chosen, and written down.
    train([texts[0]], architecture=architecture, name="a", settings=settings)
    config = json.loads((store.find("a").path / store.CONFIG).read_text())
    train([texts[0]], name="b", config=config)
    first, second = weights("a"), weights("b")
    assert all(torch.equal(first[n], second[n]) for n in first)


def test_on_the_command_line(base, texts, capfd):
    flags = ["--init-from", "base", "--steps", "2", "--seed", "1", "--name", "tuned"]
    for more in (["--model", "lstm"], ["--hidden-size", "8"], ["--tokenizer", "char"]):
        capfd.readouterr()
        assert run(["train", str(texts[1]), *flags, *more]) == 2
        out, err = capfd.readouterr()
        assert out == "" and err.count("\n") == 1 and "fixed by --init-from" in err
    layers = ["--set", "layer_decay=0.4", "--set", "unfreeze=0.5"]
    assert run(["train", str(texts[1]), *flags, *layers, "--json"]) == 0
    assert json.loads(capfd.readouterr()[0])["architecture"] == "lstm"
    assert run(["train", "--resume", "tuned", "--init-from", "base"]) == 2


def test_the_record_names_what_a_model_began_from(base, texts, capfd):
    report = pytest.importorskip("seqgen.plugins.report.command")
    """By name and hash: renamed it is found, trained again it is another."""
    tuned(texts[1])
    known = {"init_from": {"name": "base", "digest": base.digest}}
    assert store.find("tuned").record["origins"] == known
    assert run(["train", "--resume", "tuned", "--steps", "5", "--quiet"]) == 0
    assert store.find("tuned").record["origins"] == known

    def shown():
        model = store.StoredModel(store.find("tuned").path)
        lines = report.training_commands(model, "tuned")
        trained = [line for line in lines if "seqgen train" in line]
        capfd.readouterr()
        assert run(["models", "show", "tuned"]) == 0
        (line,) = re.findall("^began from +(.*)$", capfd.readouterr().out, re.M)
        return line, trained

    line, (command,) = shown()
    assert line == "base" and " --init-from base " in command
    assert run(["models", "rename", "base", "root", "--quiet"]) == 0
    line, (command,) = shown()
    assert line == "base, now called root" and " --init-from root " in command
    assert run(["models", "rename", "root", "base", "--quiet"]) == 0
    more = {**SETTINGS, **SHAPE, "steps": 3, "seed": 7}
    train([texts[0]], name="base", settings=more, overwrite=True)
    assert shown() == ("base, which is gone or has been trained again", [])
    assert run(["models", "remove", "base", "--yes", "--quiet"]) == 0
    assert shown() == ("base, which is gone or has been trained again", [])


def test_a_record_without_origins_is_read(base, texts):
    report = pytest.importorskip("seqgen.plugins.report.command")
    """Earlier versions kept the name alone, in the configuration."""
    tuned(texts[1])
    model = store.find("tuned")
    place = model.path / store.RECORD
    facts = {k: v for k, v in json.loads(place.read_text()).items() if k != "origins"}
    place.write_text(json.dumps(facts))
    (model.path / "manifest.json").unlink()
    model = store.StoredModel(model.path)
    assert store.origins_of(model)["init_from"].path == base.path
    assert " --init-from base " in report.training_commands(model, "tuned")[0]
