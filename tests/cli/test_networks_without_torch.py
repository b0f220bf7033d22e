"""Stored networks that are no language models answer without PyTorch, as it does."""

from __future__ import annotations

import shutil

import pytest
from helpers_cli import installed, known_kinds
from make_kinds import EXACT, KINDS, OF_LINES, RECIPES, filled_in
from places import STORED
from stored_answers import records
from without_torch import assert_alike, without_torch

from seqgen import registry, store
from seqgen.engines.choice import ASKED_FOR
from seqgen.store.loading import load_over_arrays

# Commands that answer more of a kind, besides those that stored models are asked for everywhere.
MORE = {
    "words": [OF_LINES, ("vectors", "--analogy", "tea:sea::ten:?", "--top", "2")],
    "masked": [
        ("perplexity", "{}/kinds/patterns.txt", "--per-line"),
        ("vectors", "--neighbours", "tea"),
        (*OF_LINES, "--layer", "0", "--pool", "none"),
        ("inspect", "{}/kinds/patterns.txt", "--attention", "--token", "tea"),
    ],
    "classify": [(*OF_LINES, "--pool", "none")],
    "tag": [("vectors", "--file", "{}/kinds/patterns.txt")],
    "both-ways": [(*OF_LINES, "--layer", "0", "--pool", "none")],
}
OF_KINDS = [name for name, recipe in RECIPES.items() if recipe.kind in {*MORE, "patterns"}]
NAMES = known_kinds(OF_KINDS)


@pytest.fixture
def stored(home):
    shutil.copytree(STORED / "kinds" / "models", home / "models")
    return home / "models"


@pytest.mark.fast_for("hopfield*", "word2vec", "bert", "bag-classifier", "encoder-tagger")
@pytest.mark.parametrize("name", NAMES)
def test_the_answers_are_those_of_torch(name, stored, monkeypatch):
    kind = RECIPES[name].kind
    asked = [*KINDS[kind].questions.values(), *MORE.get(kind, ()), ("models", "show", name)]
    plain = [[part for part in command if part not in EXACT] for command in installed(asked)]
    commands = [
        filled_in(one if one[0] == "models" else [*one, "-m", name], STORED) for one in plain
    ]
    found = without_torch(commands)
    monkeypatch.setattr("seqgen.store.loading.engine_of", lambda *_: ASKED_FOR)
    for command, answer in zip(commands, found, strict=True):
        assert_alike(answer, records(*command))


def test_they_are_of_every_kind(stored):
    found = {name for name in NAMES if load_over_arrays(store.find_all(name)) is not None}
    kinds = {
        registry.feature_architecture(store.find(name).config["architecture"]).name
        for name in found
    }
    rows = registry.ARCHITECTURES.items()
    there = NAMES == OF_KINDS
    assert {name for name, row in rows if row.arrays and row.task.model_is and there} <= kinds
