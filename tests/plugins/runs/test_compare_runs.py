"""`seqgen models compare-runs`: which settings of runs differ, and what came of them."""

from __future__ import annotations

import hashlib
import json

import pytest

from seqgen import store

TEXT = "the cat sat on the mat.\nA dog ran; it was fun!\n" * 12
TINY = ["--model", "rnn", "--layers", "1", "--steps", "4", "--set", "validate_every=2", "--quiet"]


@pytest.fixture
def runs(cli, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    for name, size, seed in (("a", "4", "1"), ("b", "8", "1")):
        settings = ("--hidden-size", size, "--seed", seed, "--name", name)
        assert cli("train", tmp_path / "text.txt", *TINY, *settings)[0] == 0
    settings = ("--model", "ngram", "--seed", "1", "--name", "c", "--quiet")
    assert cli("train", tmp_path / "text.txt", *settings)[0] == 0


def test_runs_are_compared(cli, runs, tmp_path):
    code, out, err = cli("models", "compare-runs", "a", "b")
    assert (code, err) == (0, "intervals: 95 %, by bootstrap over 57 bytes that all held out\n")
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


def test_texts_that_differ_are_a_row(cli, runs, tmp_path):
    (tmp_path / "other.txt").write_text(TEXT + "more\n")
    settings = ("--hidden-size", "4", "--seed", "1", "--name", "d")
    assert cli("train", tmp_path / "other.txt", *TINY, *settings)[0] == 0
    assert "SHA-256" not in cli("models", "compare-runs", "a", "b", "--no-intervals")[1]
    out = cli("models", "compare-runs", "a", "d", "--no-intervals")[1]
    texts = [hashlib.sha256(text.encode()).hexdigest()[:8] for text in (TEXT, TEXT + "more\n")]
    rows = [line.split() for line in out.splitlines()]
    assert ["text", "(SHA-256)", *texts] in rows


def test_settings_that_differ_among_those_that_have_them_are_rows(cli, runs):
    """Beside a baseline of n-grams, too, which has none of them."""
    out = cli("models", "compare-runs", "a", "b", "c", "--no-intervals")[1]
    assert ["hidden_size", "4", "8", "-"] in [line.split() for line in out.splitlines()]


def test_settings_of_one_architecture_are_no_rows(cli, runs):
    code, out, err = cli("models", "compare-runs", "b", "c", "--no-intervals")
    assert code == 0 and "architecture" in out and "hidden_size" not in out
    assert "settings that not all of them have: --json lists them" in err
    (tokens,) = (line for line in out.splitlines() if line.startswith("steps taken"))
    assert tokens.split()[2] == "4"


def held_out(cli, *names):
    code, out, err = cli("models", "compare-runs", *names, "--json")
    assert code == 0
    return [json.loads(line)["held_out"] for line in out.splitlines()], err


def test_figures_have_the_intervals_of_compare(cli, runs):
    found, _ = held_out(cli, "a", "b", "c")
    compared = [
        json.loads(line) for line in cli("compare", "a", "b", "c", "--json")[1].splitlines()
    ]
    shared = ("bytes", "bits_per_byte", "low", "high", "best", "difference", "p_value")
    for one, other in zip(found, compared, strict=True):
        for key in shared:  # compare may choose another engine, whose rounding differs
            same = isinstance(one[key], str) or one[key] is None
            assert one[key] == (
                other[key] if same else pytest.approx(other[key], rel=1e-6, abs=1e-6)
            )
        assert one["model"] == other["model"]
        if one["model"] != one["best"]:
            assert one["difference_low"] <= one["difference"] <= one["difference_high"]
            # Paired: models of one text are alike in what is hard, so less than both together.
            (best,) = (two for two in found if two["model"] == one["best"])
            widths = [two["high"] - two["low"] for two in (one, best)]
            assert one["difference_high"] - one["difference_low"] <= sum(widths)
    table = cli("models", "compare-runs", "a", "b", "c")[1]
    row = next(line for line in table.splitlines() if line.startswith("held-out bits/byte"))
    assert [float(cell) for cell in row.split()[2:]] == [
        pytest.approx(one["bits_per_byte"], abs=5e-5) for one in found
    ]
    assert "difference from best" in table and " to " in table


def test_equal_models_do_not_differ(cli, runs, tmp_path):
    settings = ("--hidden-size", "4", "--seed", "1", "--name", "again")
    assert cli("train", tmp_path / "text.txt", *TINY, *settings)[0] == 0
    one, other = held_out(cli, "a", "again")[0]
    worse = other if one["model"] == one["best"] else one
    assert [worse[key] for key in ("difference", "difference_low", "difference_high")] == [0, 0, 0]
    assert worse["p_value"] == 1


def test_models_without_one_held_out_text_have_no_intervals(cli, runs, tmp_path):
    (tmp_path / "other.txt").write_text(TEXT.replace("cat", "cow"))
    settings = ("--model", "ngram", "--name", "other", "--quiet")
    assert cli("train", tmp_path / "other.txt", *settings)[0] == 0
    code, out, err = cli("models", "compare-runs", "c", "other")
    assert code == 0 and "held-out" not in out and "val_bits_per_byte" in out
    assert err.startswith("no intervals: c and other hold out different texts")
    assert err.count("\n") == 1
    assert held_out(cli, "c", "other")[0] == [None, None]
    assert cli("models", "compare-runs", "c", "other", "--no-intervals")[2] == ""
    assert cli("models", "compare-runs", "c", "other", "--quiet")[2] == ""


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
