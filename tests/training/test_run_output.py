"""What a run shows: samples, the loss curve, the summary, early stopping."""

from __future__ import annotations

import json

import pytest

from seqgen import store
from seqgen.cli.shell.tables import curve
from seqgen.generation.sample import fixed_sample
from seqgen.store.loading import load
from seqgen.training import session

TEXT = "the cat sat on the mat.\nA dog ran; it was fun!\n" * 12
TINY = ["--hidden-size", "8", "--layers", "1", "--seed", "1", "--precision", "float32"]
SHORT = ["--steps", "6", "--set", "validate_every=3", *TINY]


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return str(tmp_path / "text.txt")


def test_samples_of_a_fixed_seed_from_step_0_on(cli, text):
    assert cli("train", text, "--name", "x", "--quiet", *SHORT)[0] == 0
    records = store.find("x").logged(store.SAMPLES)
    assert [record["step"] for record in records] == [0, 3, 6]
    assert records[0]["text"] != records[2]["text"]
    # The best model is the last one here, and writes the same again.
    assert records[2]["text"] == fixed_sample(load("x"), tokens=session.SAMPLE_TOKENS)
    code, out, err = cli("models", "show", "x", "--samples")
    assert (code, err) == (0, "")
    assert out == "".join(f"── step {r['step']} ──\n{r['text']}\n\n" for r in records)
    code, out, _ = cli("models", "show", "x", "--samples", "--json")
    assert [json.loads(line) for line in out.splitlines()] == records


def test_without_validation_there_are_samples_of_both_ends(cli, text):
    flags = ["--name", "x", "--quiet", "--val", "none", "--set", "ema=0.5"]
    assert cli("train", text, *flags, "--stop-after", "2", *SHORT)[0] == 0
    assert cli("train", "--resume", "x", "--quiet")[0] == 0
    first, last = store.find("x").logged(store.SAMPLES)
    assert (first["step"], last["step"]) == (0, 6)
    assert last["text"] == fixed_sample(load("x"), tokens=session.SAMPLE_TOKENS)


def test_the_final_record_and_the_summary_have_a_sample_and_the_protocol(cli, text):
    code, out, err = cli("train", text, "--name", "x", "--json", *SHORT)
    record = json.loads(out)
    assert (code, record["stopped"], record["best_step"]) == (0, "steps", 6)
    assert record["protocol"] == "one stream after a newline; char tokens; unknowns scored as <unk>"
    assert record["sample"] == fixed_sample(load("x"), tokens=session.SAMPLE_TOKENS)
    assert "  validation     one stream after a newline; char tokens" in err
    first = record["sample"].strip("\n").splitlines()[0]
    assert f"  | {first}\n" in err


def test_patience_on_the_command_line(cli, text, tmp_path):
    """What is learned is wrong of the held-out text."""
    (tmp_path / "held-out.txt").write_text("tttt\n" * 40)
    flags = ["--val", tmp_path / "held-out.txt", "--patience", "2", "--lr", "0.05"]
    flags += ["--set", "validate_every=2", "--steps", "500", *TINY]
    code, out, err = cli("train", text, "--name", "x", "--json", *flags)
    record = json.loads(out)
    assert (code, record["stopped"]) == (0, "patience")
    assert record["steps"] == record["best_step"] + 4
    assert "validation stopped improving" in err
    code, out, err = cli("train", "--resume", "x", "--json")
    assert (code, json.loads(out)["steps"]) == (0, record["steps"])
    assert "has finished" in err
    code, out, _ = cli("train", "--resume", "x", "--json", "--steps", "600")
    assert (code, json.loads(out)["steps"] > record["steps"]) == (0, True)
    assert cli("train", text, "--val", "none", "--patience", "2")[0] == 2


def test_the_curve_of_a_model_also_while_it_is_trained(cli, text):
    assert cli("train", text, "--name", "x", "--quiet", "--stop-after", "4", *SHORT)[0] == 0
    with (store.find("x").path / store.METRICS).open("a") as file:
        file.write('{"step": 5, "train_lo')  # a line that is being written
    code, out, err = cli("models", "show", "x")
    assert (code, err) == (0, "")
    picture = out.partition("nats/token by step")[2].splitlines()[1:]
    framed = [line.partition("┤")[2].rpartition("│")[0] for line in picture if "┤" in line]
    marks = {mark for line in framed for mark in line}
    assert marks <= {".", "o", " "} and "o" in marks


def test_a_curve_by_hand():
    """Each point is where its share of the axes says: the highest on top, the latest at right."""
    lines = curve([(".", [(0, 4.0), (9, 1.0)]), ("o", [(4.5, 2.5)])], width=16, height=6)
    assert all(len(line) <= 16 for line in lines) and len(lines) == 6
    inside = [
        line[line.index(edge) + 1 : -1] for line in lines[1:-2] for edge in "┤│" if edge in line[:6]
    ]
    assert inside[0].index(".") == 0 and inside[-1].rindex(".") == len(inside[-1]) - 1
    (middle,) = [line.index("o") for line in inside if "o" in line]
    assert abs(middle - len(inside[0]) / 2) <= 1
    assert lines[-1].split()[0] == "0" and lines[-1].split()[-1] == "9"
    assert curve([(".", [(1, float("nan"))])]) == []
    assert curve([(".", [(1, 2.0)])], height=6)  # one point alone


@pytest.mark.parametrize(("columns", "wide"), [(50, 50), (400, 100), (5, 24)])
def test_a_curve_is_as_wide_as_the_terminal(columns, wide, monkeypatch):
    points = [(".", [(0, 4.0), (9, 1.0)])]
    assert max(map(len, curve(points))) == 72
    for module in ("tables", "output"):
        monkeypatch.setattr(f"seqgen.cli.shell.{module}.is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, curve(points))) == wide
