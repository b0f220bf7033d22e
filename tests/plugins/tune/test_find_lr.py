"""`seqgen find-lr`: the ramp, its suggestion, and what it refuses."""

from __future__ import annotations

import re

import pytest
from helpers_cli import records, refusal

from seqgen.cli import run
from seqgen.plugins.tune.rate_finder import HIGHEST, LOWEST, STEPS, RampPoint, suggest

TEXT = "the cat sat on the mat and the dog sat on the log\n" * 40


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "cat.txt"
    path.write_text(TEXT)
    return path


def test_the_suggestion_of_a_ramp_by_hand():
    losses = [4.0, 4.0, 3.9, 3.0, 2.5, 2.4, 2.6, 9.0]
    points = [
        RampPoint(step=i, lr=10.0 ** (i - 6), loss=loss, smoothed=loss)
        for i, loss in enumerate(losses)
    ]
    found = suggest(points)
    assert found.lowest_loss_lr == pytest.approx(0.1) and found.suggested_lr == pytest.approx(0.01)
    assert found.steepest_lr == pytest.approx(1e-4)
    assert suggest(points[:1]).steps == 1


def test_find_lr_ramps_and_stores_nothing(text, tmp_path, capsys):
    asked = ["find-lr", text, "--hidden-size", 8, "--layers", 1, "--seq-len", 8]
    *points, found = records(capsys, *asked, "--steps", 50, "--lr", 0.01, "--batch-size", 4)
    assert not (tmp_path / "home" / "models").exists()
    assert [p["step"] for p in points] == list(range(len(points)))
    ratio = (HIGHEST / LOWEST) ** (1 / (STEPS - 1))
    assert points[0]["lr"] == pytest.approx(0.01 * LOWEST)
    assert points[1]["lr"] / points[0]["lr"] == pytest.approx(ratio)
    smoothed = [p["smoothed"] for p in points]
    mean = 0.0
    for i, point in enumerate(points):
        mean = 0.8 * mean + 0.2 * point["loss"]
        assert point["smoothed"] == pytest.approx(mean / (1 - 0.8 ** (i + 1)))
    assert smoothed[-1] > 1.5 * min(smoothed) or len(points) == STEPS
    assert found["suggested_lr"] == pytest.approx(0.1 * found["lowest_loss_lr"])
    assert 1e-4 < found["suggested_lr"] < 10


@pytest.mark.slow
def test_find_lr_draws_its_points(text, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="--plot needs matplotlib, the extra `plot`")
    picture, bitmap = tmp_path / "rates.svg", tmp_path / "rates.png"
    asked = ["find-lr", text, "--hidden-size", 8, "--layers", 1, "--seq-len", 8]
    points = records(capsys, *asked, "--steps", 5, "--seed", 1, "--plot", picture)[:-1]
    drawn = picture.read_text()
    labels = "learning rate", "nats/token", "loss of a step", "smoothed"
    assert all(f">{label}</text>" in drawn for label in labels)
    # The two longest paths are the curves, with a corner for each point.
    corners = sorted(len(re.findall("[ML] ", d)) for d in re.findall(r'd="([^"]*)"', drawn))
    assert corners[-2:] == [len(points)] * 2
    assert run([*map(str, asked), "--steps", "5", "-q", "--plot", str(bitmap)]) == 0
    assert bitmap.read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "home" / "models").exists()


def test_find_lr_refuses_in_a_line(text, capsys):
    assert "no learning rate" in refusal(capsys, "find-lr", text, "--model", "ngram")
    broken = text.with_name("broken.txt")  # refused before it is read
    broken.write_bytes(b"\xff" * 9)
    assert "no learning rate" in refusal(capsys, "find-lr", broken, "--model", "ngram")
    said = refusal(capsys, "find-lr", text, "--name", "x")
    assert "No such option: --name" in said
    assert "No such option: --resume" in refusal(capsys, "find-lr", "--resume", "x")


@pytest.mark.slow
def test_the_old_spelling_is_told_the_new_one(text, tmp_path, capsys):
    asked = [str(text), "--hidden-size", "8", "--layers", "1", "--seq-len", "8", "--seed", "1"]
    asked += ["--steps", "5"]
    assert run(["find-lr", *asked]) == 0
    now = capsys.readouterr()
    assert run(["train", *asked, "--find-lr"]) == 0
    then = capsys.readouterr()
    assert then.out == now.out and "now seqgen find-lr;" in then.err
    assert "now seqgen" not in now.err
    assert run(["train", "--find-lr", *asked, "--quiet"]) == 0
    assert capsys.readouterr() == (now.out, "")


@pytest.mark.fast_for("seq2seq", rest="slow")
@pytest.mark.parametrize("architecture", ["seq2seq", "seq2seq-transformer"])
def test_models_of_pairs_are_ramped_too(architecture, tmp_path, capsys):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{'ab'[n % 2]} {'cd'[n % 3 // 2]}\tx{n % 2}\n" for n in range(40)))
    asked = [pairs, "--model", architecture, "--hidden-size", 8, "--steps", 5]
    *points, found = records(capsys, "find-lr", *asked, "-q")
    assert found["steps"] == len(points) > 10
