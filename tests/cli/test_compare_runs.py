"""`seqgen models compare-runs`: which settings of runs differ, and what came of them."""

from __future__ import annotations

import json

import pytest

from seqgen import store

TEXT = "the cat sat on the mat.\nA dog ran; it was fun!\n" * 12
TINY = ["--model", "rnn", "--layers", "1", "--steps", "4", "--set", "validate_every=2", "--quiet"]


@pytest.fixture
def runs(cli, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    for name, size, seed in (("a", "4", "1"), ("b", "8", "1")):
        how = ("--hidden-size", size, "--seed", seed, "--name", name)
        assert cli("train", tmp_path / "text.txt", *TINY, *how)[0] == 0
    how = ("--model", "ngram", "--seed", "1", "--name", "c", "--quiet")
    assert cli("train", tmp_path / "text.txt", *how)[0] == 0


def test_runs_are_compared(cli, runs, tmp_path):
    code, out, err = cli("models", "compare-runs", "a", "b")
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.split("\n\n")[0].splitlines()]
    results = [store.result_of(store.find(name)) for name in "ab"]
    assert rows[:2] == [["a", "b"], ["hidden_size", "4", "8"]]
    assert ["val_loss", *(f"{result['val_loss']:.4f}" for result in results)] in rows
    assert ["parameters", *(f"{result['parameters']:,}" for result in results)] in rows
    assert "validation loss by step: 1 a, 2 b\n" in out
    code, out, _ = cli("models", "compare-runs", "b", "c", "--json")
    first, second = map(json.loads, out.splitlines())
    assert first["settings"]["architecture"] == "rnn" and first["result"] == results[1]
    assert second["settings"]["architecture"] == "ngram"
    assert second["settings"]["hidden_size"] is None and first["settings"].keys() == (
        second["settings"].keys()
    )


def test_the_curves_are_one_picture(cli, runs, tmp_path):
    pytest.importorskip("matplotlib", reason="--plot needs matplotlib")
    picture = tmp_path / "runs.svg"
    assert cli("models", "compare-runs", "a", "b", "c", "--plot", picture)[0] == 0
    assert picture.read_text().lstrip().startswith("<?xml")
    (tmp_path / "other.svg").write_text("mine")
    code, _, err = cli("models", "compare-runs", "a", "b", "--plot", tmp_path / "other.svg")
    assert code == 2 and "other.svg" in err and (tmp_path / "other.svg").read_text() == "mine"


def test_fewer_than_two_models_are_refused(cli, runs):
    for names in (["a"], ["a", "a"]):
        code, out, err = cli("models", "compare-runs", *names)
        assert (code, out, err) == (2, "", "seqgen: give two models or more\n")
    assert "no model" in cli("models", "compare-runs", "a", "nosuch")[2]
