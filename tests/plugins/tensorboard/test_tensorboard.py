"""`seqgen train --tensorboard`: the figures of a run, in TensorBoard's own files."""

from __future__ import annotations

import sys

import pytest

from seqgen import store

TEXT = "the cat sat on the mat.\nA dog ran; it was fun!\n" * 12
TINY = ["--hidden-size", "8", "--layers", "1", "--seed", "1", "--precision", "float32"]
SHORT = ["--steps", "6", "--set", "validate_every=3", *TINY]


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return str(tmp_path / "text.txt")


def test_tensorboard_is_asked_for_politely(cli, text, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    code, out, err = cli("train", text, "--name", "x", "--tensorboard", *SHORT)
    assert (code, out) == (1, "")
    assert err == ("seqgen: --tensorboard needs the package tensorboard: pip install tensorboard\n")
    assert not (store.models_folder() / "x").exists()


def test_tensorboard_has_the_figures(cli, text):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    flags = ["--name", "x", "--quiet", "--tensorboard"]
    assert cli("train", text, *flags, "--stop-after", "4", *SHORT)[0] == 0
    assert cli("train", "--resume", "x", "--quiet", "--tensorboard")[0] == 0
    stored = store.find("x")
    events = EventAccumulator(str(stored.path / "tensorboard"))
    events.Reload()
    wanted = [r for r in stored.logged(store.METRICS) if "val_loss" in r]
    found = events.Scalars("val_loss")
    assert [event.step for event in found] == [r["step"] for r in wanted] == [3, 6]
    assert [e.value for e in found] == pytest.approx([r["val_loss"] for r in wanted], rel=1e-6)
    assert {"train_loss", "lr", "grad_norm"} <= set(events.Tags()["scalars"])
