"""Commands on stored models that need no PyTorch: its import fails, and the answers are its own."""

from __future__ import annotations

import os
import shutil

import pytest
from helpers_cli import has_plugin, installed, known_kinds, needs
from make_kinds import EXACT, PAIRS_FILE, RECIPES, TARGETS, VECTORS, filled_in
from places import STORED
from stored_answers import records
from without_torch import assert_alike, without_torch

from seqgen import registry, store
from seqgen.cli import run
from seqgen.engines.choice import ASKED_FOR
from seqgen.models.recurrent.arrays import RecurrentArrays
from seqgen.models.transformer.arrays import TransformerArrays
from seqgen.store.loading import Work, engine_of, load_over_arrays

TEXT = "{}/tiny.txt"
WRITE = [
    ("sample", "--seed", "3", "--num-samples", "3", "--max-tokens", "12"),
    ("sample", "--greedy", "--max-tokens", "8"),
    ("beam-search", "--beams", "3", "--nbest", "2", "--max-tokens", "8"),
]
SEE_SOURCES = [
    ("sample", "--seed", "5", "--max-tokens", "8", "--force", "B", "--attention"),
    ("beam-search", "--max-tokens", "6", "--align", "--coverage-penalty", "0.2"),
    ("beam-search", "--max-tokens", "6", "--max-ratio", "1.5", "--copy-unknown"),
]
SCORE = [
    ("perplexity",),
    ("eval", "--perplexity"),
    ("compare", "{model}", "--no-bleu", "--data"),
    ("tokenize",),
]
# What models write from, and the files that they score, by kind.
GIVEN = {"pairs": ("abc", "edcb"), "vectors": VECTORS, "labels": ("--label", "long")}
SCORED = {"pairs": (PAIRS_FILE,), "vectors": (*VECTORS, TARGETS)}
NO_ATTENTION = {"seq2seq-plain", "mixture-of-pairs"}
OF_TEXT = [("inspect", TEXT, "--max-tokens", "9")]
OF_RECURRENT = [
    ("inspect", TEXT, "--max-tokens", "9", view, *more)
    for view, *more in (["--steps"], ["--units"], ["--unit", "1"])
]
OF_TRANSFORMERS = [("inspect", TEXT, "--max-tokens", "9", "--attention")]
WITH_PRECISION = {"sample", "beam-search", "perplexity", "eval", "compare"}


def over_arrays(name):
    """Return a language model in the home over arrays; None if it is run by torch, or is none."""
    stored = store.find_all(name)
    return None if stored.task.model_is else load_over_arrays(stored)


def questions(name, model, loaded):
    """Yield the commands that a model is asked."""
    kind = RECIPES[name].kind
    given, files = GIVEN.get(kind, ()), SCORED.get(kind, (TEXT,))
    write = WRITE if kind not in SCORED or name in NO_ATTENTION else WRITE + SEE_SOURCES
    commands = [(*command, *given) for command in write]
    if kind != "labels":
        commands += [(*command, *files) for command in SCORE] + [("models", "show", "{model}")]
        commands += [("perplexity",)] * loaded.stored.holds_out
    if kind not in GIVEN:
        commands += OF_TEXT + OF_RECURRENT * isinstance(loaded.model, RecurrentArrays)
        commands += OF_TRANSFORMERS * isinstance(loaded.model, TransformerArrays)
    others = set()
    if kind == "vectors":
        others = {"eval", "compare", "tokenize", "--copy-unknown", "--force"}
    for command in installed(commands):
        told = [part.replace("{model}", model) for part in command]
        if not others.intersection(command):
            yield filled_in(told if "{model}" in command else [*told, "-m", model], STORED)


@pytest.mark.fast_for(
    "lstm",
    "transformer",
    "window",
    "ngram",
    "hmm",
    "bert",
    "word2vec",
    "seq2seq-plain",
    "lstm-labels",
    "bag-classifier",
    "mixture",
    "imported-gpt2",
)
@pytest.mark.parametrize("name", known_kinds(RECIPES))
def test_the_answers_are_those_of_torch(name, home, monkeypatch):
    for one in (name, *RECIPES[name].needs):
        shutil.copytree(STORED / "kinds" / "models" / one, home / "models" / one)
    if (loaded := over_arrays(name)) is None:
        pytest.skip("its models are run by torch")
    model = str(home / "models" / name)
    commands = list(questions(name, model, loaded))
    found = without_torch(commands)
    monkeypatch.setattr("seqgen.store.loading.engine_of", lambda *_: ASKED_FOR)
    for command, answer in zip(commands, found, strict=True):
        exact = EXACT if command[0] in WITH_PRECISION else ()
        assert_alike(answer, records(*command, *exact))


def test_those_that_need_no_torch_are_of_every_such_kind(home):
    shutil.copytree(STORED / "kinds" / "models", home / "models")
    found = {name for name in known_kinds(RECIPES) if over_arrays(name) is not None}
    rows = registry.ARCHITECTURES.items()
    kinds = {name for name, row in rows if row.arrays and not row.task.model_is}
    assert found >= {"mixture", "mixture-by-order", "lstm-labels", "imported-arpa"}
    stored = {store.find(name).config["architecture"] for name in found}
    assert kinds <= stored


@pytest.mark.parametrize(
    ("flags", "engine"),
    [
        ((), "NumPy arrays"),
        (("--precision", "float64"), "PyTorch"),
        pytest.param(("--cache", "5"), "NumPy arrays", marks=needs("cache")),
    ],
)
def test_verbose_says_which_engine_runs(flags, engine, home, capsys):
    shutil.copytree(STORED / "kinds" / "models" / "gru", home / "models" / "gru")
    command = ["sample", "-m", "gru", "--max-tokens", "2", *flags]
    assert run([*command, "--verbose"]) == 0
    assert f"gru: run by {engine}" in capsys.readouterr().err
    assert run(command) == 0
    assert "run by" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "read", "arrays"),
    [
        (["gru"], 40_000, True),
        (["gru"], 40_001, False),
        (["ngram"], 10**9, True),  # by either engine over arrays
        pytest.param(["hmm", "ngram"], 10**9, True, marks=needs("hmm")),
        (["ngram", "gru"], 10**9, False),
    ],
)
def test_much_to_read_is_pytorchs_but_for_counts(names, read, arrays, home):
    for name in names:
        shutil.copytree(STORED / "kinds" / "models" / name, home / "models" / name)
    choice = engine_of(store.find_all("+".join(names)), Work(read=read))
    assert choice.over_arrays == arrays


def test_what_is_to_be_read_is_the_size_of_files_and_of_standard_input(tmp_path):
    (tmp_path / "a").write_bytes(bytes(7))
    (tmp_path / "b").write_bytes(bytes(50_000))
    assert Work.of_files([]).read is None
    assert Work.of_files([str(tmp_path / "a"), str(tmp_path / "b"), "none"]).read == 50_007
    kept = os.dup(0)
    try:
        with (tmp_path / "b").open("rb") as file:
            os.dup2(file.fileno(), 0)
            assert Work.of_files(["-"]).read == 50_000  # as `< b` in a shell
        reads, _ = os.pipe()
        os.dup2(reads, 0)
        assert Work.of_files(["-", str(tmp_path / "a")]).read == 7
    finally:
        os.dup2(kept, 0)


def test_mixing_needs_no_torch(home, monkeypatch):
    for name in ("lstm", "ngram"):
        shutil.copytree(STORED / "kinds" / "models" / name, home / "models" / name)
    text = str(STORED / "tiny.txt")
    mixing = ["mix", "lstm", "ngram", "--name", "N", "--overwrite", "--fit", text]
    cached = ["perplexity", text, "-m", "N", "--cache", "9"]
    commands = [mixing, [*mixing, "--by", "order"], ["perplexity", text, "-m", "N", "--fit", text]]
    if has_plugin("cache"):
        commands += [cached, [*cached, "--fit", text]]
    found = without_torch(commands)
    monkeypatch.setattr("seqgen.store.loading.engine_of", lambda *_: ASKED_FOR)
    for command, answer in zip(commands, found, strict=True):
        assert_alike(answer, records(*command))
