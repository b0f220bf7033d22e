"""Commands on stored models that need no PyTorch: its import fails, and the answers are its own."""

from __future__ import annotations

import shutil

import pytest
from make_kinds import EXACT, RECIPES
from places import STORED
from stored_answers import records
from without_torch import assert_alike, without_torch

from seqgen import registry, store
from seqgen.cli import run
from seqgen.commands.loading import Work, load_over_arrays
from seqgen.models.recurrent.array_model import RecurrentArrays

TEXT = str(STORED / "tiny.txt")
COMMANDS = [
    ("sample", "--seed", "3", "--num-samples", "3", "--max-tokens", "12"),
    ("sample", "--greedy", "--max-tokens", "8"),
    ("beam-search", "--beams", "3", "--nbest", "2", "--max-tokens", "8"),
    ("perplexity", TEXT),
    ("perplexity",),
    ("eval", TEXT, "--perplexity"),
    ("compare", "{}", "--data", TEXT),
    ("tokenize", TEXT),
    ("models", "show", "{}"),
    ("inspect", TEXT, "--max-tokens", "9"),
]
OF_RECURRENT = [
    ("inspect", TEXT, "--max-tokens", "9", view, *more)
    for view, *more in (["--steps"], ["--units"], ["--unit", "1"])
]
WITH_PRECISION = {"sample", "beam-search", "perplexity", "eval", "compare"}


def over_arrays(name):
    """Return a language model in the home over arrays; None if it is run by torch, or is none."""
    stored = store.find_all(name)
    return None if stored.task.model_is else load_over_arrays(stored)


def filled(command, model):
    if "{}" in command:
        return [part.replace("{}", model) for part in command]
    return [*command, "-m", model]


@pytest.mark.parametrize("name", RECIPES)
def test_the_answers_are_those_of_torch(name, home, monkeypatch):
    for one in (name, *RECIPES[name].needs):
        shutil.copytree(STORED / "kinds" / "models" / one, home / "models" / one)
    if (loaded := over_arrays(name)) is None:
        pytest.skip("its models are run by torch")
    model, stored = str(home / "models" / name), loaded.stored
    questions = COMMANDS if stored.holds_out else [c for c in COMMANDS if c != ("perplexity",)]
    questions = [*questions, *(OF_RECURRENT if isinstance(loaded.model, RecurrentArrays) else [])]
    commands = [filled(command, model) for command in questions]
    if loaded.labels is not None:
        commands = [command for command in commands if command[0] != "inspect"]
        commands = [[*c, "--label", "long"] for c in commands if c[0] in ("sample", "beam-search")]
    found = without_torch(commands)
    monkeypatch.setattr(Work, "suits_arrays", lambda *_: False)
    for command, answer in zip(commands, found, strict=True):
        exact = EXACT if command[0] in WITH_PRECISION else ()
        assert_alike(answer, records(*command, *exact))


def test_those_that_need_no_torch_are_of_every_such_kind(home):
    shutil.copytree(STORED / "kinds" / "models", home / "models")
    found = {name for name in RECIPES if over_arrays(name) is not None}
    rows = registry.ARCHITECTURES.items()
    kinds = {name for name, row in rows if row.arrays and not row.task.model_is}
    assert found >= {"mixture", "mixture-by-order", "lstm-labels", "imported-arpa"}
    stored = {store.find(name).config["architecture"] for name in found}
    assert kinds <= stored


@pytest.mark.parametrize(
    ("flags", "engine"),
    [((), "NumPy arrays"), (("--precision", "float64"), "PyTorch"), (("--cache", "5"), "PyTorch")],
)
def test_verbose_says_which_engine_runs(flags, engine, home, capsys):
    shutil.copytree(STORED / "kinds" / "models" / "gru", home / "models" / "gru")
    command = ["sample", "-m", "gru", "--max-tokens", "2", *flags]
    assert run([*command, "--verbose"]) == 0
    assert f"gru: run by {engine}" in capsys.readouterr().err
    assert run(command) == 0
    assert "run by" not in capsys.readouterr().err


def test_mixing_needs_no_torch(home, monkeypatch):
    for name in ("lstm", "ngram"):
        shutil.copytree(STORED / "kinds" / "models" / name, home / "models" / name)
    mixing = ["mix", "lstm", "ngram", "--name", "N", "--overwrite", "--fit", TEXT]
    commands = [mixing, [*mixing, "--by", "order"], ["perplexity", TEXT, "-m", "N", "--fit", TEXT]]
    found = without_torch(commands)
    monkeypatch.setattr(Work, "suits_arrays", lambda *_: False)
    for command, answer in zip(commands, found, strict=True):
        assert_alike(answer, records(*command))
