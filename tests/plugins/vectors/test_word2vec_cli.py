"""word2vec as a model of the command line: training, resuming, and what it is not."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import words as corpus
from helpers_cli import records, refusal, require_command
from places import CORPORA
from word_classes import right_neighbours

from seqgen import store
from seqgen.cli import run
from seqgen.plugins.vectors.words import WordVectors, load_vectors
from seqgen.training.plan import plan_of

SMALL = ("--model", "word2vec", "--set", "embedding_size=8", "--seq-len", 16, "--batch-size", 4)
SEEDED = (*SMALL, "--seed", 3, "--quiet")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in corpus.sentences()[:60]))
    return path


def table(name):
    return WordVectors.of(load_vectors(name)).vectors


def test_it_trains_and_says_what_it_is_for(text, capsys):
    assert run(["train", str(text), *map(str, SMALL), "--steps", "3", "--name", "w"]) == 0
    said = capsys.readouterr().err
    assert "try: seqgen vectors -m w" in said and "bits/char" not in said
    assert run(["models", "show", "w"]) == 0
    shown = capsys.readouterr().out
    assert "word2vec" in shown and "all as by default" in shown


def test_stopping_and_resuming_changes_nothing(text, capsys):
    """What is drawn at random goes on where it was: words left out, contexts, noise."""
    (whole,) = records(capsys, "train", text, *SEEDED, "--steps", 8, "--name", "whole")
    records(capsys, "train", text, *SEEDED, "--steps", 8, "--stop-after", 3, "--name", "part")
    (resumed,) = records(capsys, "train", "--resume", "part", "--quiet")
    assert resumed["steps"] == whole["steps"] == 8 and resumed["val_loss"] is None
    np.testing.assert_array_equal(table("whole"), table("part"))


@pytest.mark.parametrize("documents", ["stream", "line"])
def test_held_out_text_is_scored(text, documents, capsys):
    how = ("--val", "0.2", "--documents", documents, "--steps", 40, "--lr", "0.05")
    (found,) = records(capsys, "train", text, *SEEDED, *how, "--name", "w")
    first = [json.loads(line) for line in _metrics("w")]
    losses = [record["val_loss"] for record in first if "val_loss" in record]
    assert found["val_loss"] < losses[0]
    assert found["val_bits_per_char"] is found["val_bits_per_byte"] is found["sample"] is None
    assert found["protocol"] == "every word with its whole context"


def _metrics(name):
    return (store.find(name).path / store.METRICS).read_text().splitlines()


@pytest.mark.fast_for("settings2", "settings3", rest="slow")
@pytest.mark.parametrize(
    "settings", [("negatives=0",), ("form=cbow",), ("form=cbow", "negatives=0"), ("dynamic=false",)]
)
def test_every_form_learns(text, settings, capsys):
    given = [word for setting in settings for word in ("--set", setting)]
    records(capsys, "train", text, *SEEDED, *given, "--steps", 60, "--lr", "0.05", "--name", "w")
    losses = [json.loads(line)["train_loss"] for line in _metrics("w") if "train_loss" in line]
    assert np.isfinite(losses).all() and np.isfinite(table("w")).all()


@pytest.mark.parametrize(
    "command",
    [("sample",), ("beam-search", "a"), ("perplexity", "FILE"), ("eval", "FILE"), ("export", "w")],
)
def test_commands_that_need_a_language_model_refuse_it(text, command, tmp_path, capsys):
    require_command(command[0])
    records(capsys, "train", text, *SEEDED, "--steps", 1, "--name", "w")
    arguments = [str(text) if word == "FILE" else word for word in command]
    given = [] if "w" in command else ["-m", "w"]
    line = refusal(capsys, *arguments, *given)
    assert "w is made of vectors of words and is not a language model: use seqgen vectors" in line


def test_few_passes_tell_words_apart(capsys):
    """After two, no common direction hides the classes, and nothing is warned of."""
    train = ["train", str(CORPORA / "words.txt"), "--model", "word2vec", "--epochs", "2"]
    assert run([*train, "--seed", "1", "--name", "w"]) == 0
    assert "warning" not in capsys.readouterr().err
    vectors = WordVectors.of(load_vectors("w"))
    unit = vectors.vectors / np.linalg.norm(vectors.vectors, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[np.triu_indices(len(unit), 1)]
    assert cosines.mean() < 0.4 and right_neighbours(vectors) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["word2vec", "glove"])
def test_the_defaults_warn_of_nothing(name, text, capsys):
    for budget in (("--steps", "70"), ("--steps", "5000", "--stop-after", "70")):
        train = ["train", str(text), "--model", name, *budget, "--seed", "1", "--overwrite"]
        assert run([*train, "--name", "w"]) == 0
        assert "warning" not in capsys.readouterr().err


def test_a_rate_follows_the_rule_that_it_is_for():
    """The default rule given by its name is the default; Adam gets a rate of its own."""
    from seqgen.plugins.vectors.models.settings import Word2VecConfig
    from seqgen.settings.training import TrainingConfig, adapt_recipe

    recipe = Word2VecConfig.recipe
    rates = {
        rule: TrainingConfig(**{**adapt_recipe({"optimizer": rule}, recipe), "optimizer": rule}).lr
        for rule in ("adagrad", "adam", "adamw", "muon", "sgd")
    }
    assert rates == {"adagrad": 0.3, "adam": 0.01, "adamw": 0.01, "muon": 0.01, "sgd": 0.5}


@pytest.mark.parametrize(
    ("tokens", "rate"),
    [(200_000, 0.3), (500_000, 0.3), (720_000, 0.25), (2_000_000, 0.15), (8_000_000, 0.15)],
)
def test_the_rate_falls_with_the_length_of_the_text(tokens, rate):
    """0.3 / sqrt(tokens / 500,000), between 0.3 and 0.15, unless a rate is given."""

    def lr(**given):
        return plan_of("word2vec", None, given, {}, list(given)).for_text(tokens).training.lr

    assert lr() == lr(optimizer="adagrad") == pytest.approx(rate)
    assert lr(lr=0.2) == 0.2 and lr(optimizer="adam") == 0.01


@pytest.mark.parametrize("given", [(), ("--lr", 0.2)])
def test_training_takes_the_rate_for_its_text(text, given, monkeypatch, capsys):
    monkeypatch.setattr("seqgen.plugins.vectors.models.settings.FULL_RATE_TOKENS", 100)
    records(capsys, "train", text, *SEEDED, "--steps", 1, *given, "--name", "w")
    assert store.find("w").config["training"]["lr"] == (0.2 if given else 0.15)


def test_vectors_are_trained_in_bf16(text, capsys):
    """Nearly as in float32, though products and their gradients have fewer bits."""
    for precision in ("float32", "bf16"):
        how = ("--steps", 5, "--precision", precision, "--name", precision)
        records(capsys, "train", text, *SEEDED, *how)
    np.testing.assert_allclose(table("bf16"), table("float32"), atol=0.1)


def test_bad_inputs(text, capsys):
    train = ("train", text, *SEEDED, "--steps", 1)
    assert "--regime scheduled is for language models; word2vec is none" in refusal(
        capsys, *train, "--regime", "scheduled"
    )
    pairs = ("--source", text, "--target", text)
    assert "word2vec learns from words in their contexts: it takes no --target" in refusal(
        capsys, train[0], *train[2:], *pairs
    )
    assert "form must be one of skip-gram, cbow" in refusal(capsys, *train, "--set", "form=glove")
    assert "compile=true is for the transformer" in refusal(capsys, *train, "--set", "compile=true")
    assert "--labels" in refusal(capsys, *train, "--labels")


def test_vectors_go_on_from_those_of_another_text(text, capsys):
    records(capsys, "train", text, *SEEDED, "--steps", 2, "--name", "w")
    more = ("--steps", 1, "--lr", "1e-9", "--batch-size", 4, "--seq-len", 16, "--seed", 1)
    records(capsys, "train", text, "--init-from", "w", *more, "--name", "x", "--quiet")
    np.testing.assert_allclose(table("x"), table("w"), atol=1e-6)


@pytest.mark.slow
def test_neighbours_and_analogies_of_known_classes(capsys):
    """Of the made corpus, in about a minute of training on one slow core."""
    given = ("--model", "word2vec", "--steps", 600, "--seed", 1, "--quiet")
    records(capsys, "train", CORPORA / "words.txt", *given, "--name", "w")
    vectors = WordVectors.of(load_vectors("w"))
    assert right_neighbours(vectors) >= 0.95
    asked = corpus.analogies()
    found = [vectors.analogy(f"{a}:{b}::{c}:?", 1)[0].neighbour for a, b, c, _ in asked]
    assert np.mean([word == d for word, (*_, d) in zip(found, asked, strict=True)]) >= 0.95


def test_the_script_gives_the_same_bytes():
    command = [sys.executable, str(CORPORA / "words.py"), "text"]
    made = subprocess.run(command, capture_output=True, timeout=120, check=True).stdout
    assert made == (CORPORA / "words.txt").read_bytes()


def test_known_classes():
    """Every word of a class is in the text, and there is a question for every two places."""
    there = set((CORPORA / "words.txt").read_text().split())
    assert all(set(words) <= there for words in corpus.classes())
    places = len(corpus.PLACES)
    assert len(set(corpus.analogies())) == places * (places - 1)
    assert len({word for place in corpus.PLACES for word in place}) == 4 * places
