"""`seqgen train --log`: what TensorBoard, trackio and wandb have of a run."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import types

import pytest
from helpers_cli import needs

import seqgen
from seqgen import store
from seqgen.training.events import Notice

pytestmark = needs("trackers")

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
    said = "seqgen: --log tensorboard needs the package tensorboard: pip install tensorboard\n"
    assert err == said
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
    assert {"settings/text_summary", "sample/text_summary"} <= set(events.Tags()["tensors"])


class FakeTracker(types.ModuleType):
    """Stands for trackio and wandb: keeps what it is called with."""

    def __init__(self, name: str, fails: str = "") -> None:
        super().__init__(name)
        self.fails, self.began, self.logged, self.finished = fails, [], [], 0
        self.torn_down = 0
        self.summary = {}

    def init(self, **about):
        sys.stdout.write("said by the tracker\n")
        if self.fails == "init":
            raise ConnectionError("no network\nmore")
        self.began.append(about)
        return self

    def log(self, figures, step=None):
        if self.fails == "log" and len(self.logged) > 1:
            raise ValueError("full")
        if self.fails in ("exit", "lost") and len(self.logged) > 1:
            raise SystemExit(3) if self.fails == "exit" else ConnectionResetError("lost")
        self.logged.append((step, figures))

    def finish(self):
        self.finished += 1
        if self.fails in ("finish", "lost"):
            raise OSError("no space")

    def teardown(self):
        self.torn_down += 1

    def Settings(self, **options):
        return options


def test_trackers_get_settings_figures_samples_and_the_result(cli, text, monkeypatch):
    fakes = {name: FakeTracker(name) for name in ("trackio", "wandb")}
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    flags = ["--name", "x", "--quiet", "--log", "trackio,wandb"]
    code, out, _ = cli("train", text, *flags, "--stop-after", "4", *SHORT)
    assert (code, out) == (0, "said by the tracker\n")  # of wandb, which is told to be silent
    assert cli("train", "--resume", "x", "--quiet", "--log", "wandb,trackio")[0] == 0
    stored = store.find("x")
    wanted = {r["step"]: r["val_loss"] for r in stored.logged(store.METRICS) if "val_loss" in r}
    for name, fake in fakes.items():
        assert fake.finished == 2 and [about["name"] for about in fake.began] == ["x", "x"]
        config = fake.began[0]["config"]
        assert config["hidden_size"] == 8 and config["seed"] == 1 and config["name"] == "x"
        found = {
            step: figures["val_loss"] for step, figures in fake.logged if "val_loss" in figures
        }
        assert found == wanted and any("lr" in figures for _, figures in fake.logged)
        assert any("sample" in figures for _, figures in fake.logged)
        result = fake.summary if name == "wandb" else fake.logged[-1][1]
        assert result["result/val_loss"] == store.result_of(stored)["val_loss"]
    assert [about["resume"] for about in fakes["trackio"].began] == ["never", "allow"]
    first, second = fakes["wandb"].began
    assert first["id"] == second["id"] and first["mode"] == "offline"


def test_a_run_of_wandb_keeps_its_id_when_settings_are_revised(monkeypatch):
    """As regularisation is during a run with a time budget."""
    from seqgen.plugins.trackers.wandb_run import WandbRun

    fake = FakeTracker("wandb")
    monkeypatch.setitem(sys.modules, "wandb", fake)

    def id_of(name, created, dropout):
        stored = types.SimpleNamespace(name=name, record={"created": created})
        WandbRun(types.SimpleNamespace(stored=stored, step=0)).begin({"dropout": dropout})
        return fake.began[-1]["id"]

    begun = "2026-11-28T08:00:00+00:00"
    assert id_of("x", begun, 0.1) == id_of("x", begun, 0.3)
    others = id_of("y", begun, 0.1), id_of("x", "2026-11-28T08:00:01+00:00", 0.1)
    assert len({id_of("x", begun, 0.1), *others}) == 3


@pytest.mark.parametrize("tracker", ["trackio", "wandb"])
@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("init", "{} no longer logs this run: ConnectionError: no network"),
        ("log", "{} no longer logs this run: ValueError: full"),
        ("exit", "{} no longer logs this run: SystemExit: 3"),
        ("lost", "{} no longer logs this run: ConnectionResetError: lost"),
        ("finish", "{} has not all of this run: no space"),
    ],
)
def test_a_tracker_that_fails_costs_a_warning(tracker, fails, said, cli, text, monkeypatch):
    fake, other = FakeTracker(tracker, fails), FakeTracker("other")
    for name in ("trackio", "wandb"):
        monkeypatch.setitem(sys.modules, name, fake if name == tracker else other)
    code, _, err = cli("train", text, "--name", "x", "--log", "trackio,wandb", *SHORT)
    assert code == 0 and store.result_of(store.find("x"))["steps"] == 6
    warnings = [line for line in err.splitlines() if line.startswith("warning")]
    assert warnings == [f"warning: {said.format(tracker)}"]
    assert other.finished == 1 and len(other.logged) > 3  # the other one has all of the run
    # wandb waits at the exit of Python for a service that is gone, unless it is told.
    gone = tracker == "wandb" and fails in ("lost", "finish")
    assert fake.torn_down == gone


def test_what_fails_in_the_thread_of_tensorboard_is_a_warning(cli, text, monkeypatch):
    record_writer = pytest.importorskip("tensorboard.summary.writer.record_writer")
    tracebacks = []
    monkeypatch.setattr(threading, "excepthook", tracebacks.append)
    write, written = record_writer.RecordWriter.write, []

    def fail(self, data):
        written.append(data)
        if len(written) > 4:
            raise OSError(28, "No space left on device")
        write(self, data)

    monkeypatch.setattr(record_writer.RecordWriter, "write", fail)
    code, _, err = cli("train", text, "--name", "x", "--log", "tensorboard", *SHORT)
    warnings = [line for line in err.splitlines() if line.startswith("warning")]
    assert code == 0 and len(warnings) == 1 and not tracebacks
    assert "tensorboard" in warnings[0] and "No space left on device" in warnings[0]
    thread = threading.Thread(target=lambda: 1 / 0)  # others are not silenced
    thread.start()
    thread.join()
    assert len(tracebacks) == 1


def test_unknown_trackers_are_refused(cli, text):
    for names, said in (
        ("trackoi", "--log knows no 'trackoi'; did you mean 'trackio'?"),
        ("mlflow", "--log knows no 'mlflow': give tensorboard, trackio, wandb"),
        (",", "--log names nothing: give tensorboard, trackio, wandb"),
    ):
        assert cli("train", text, "--log", names, *SHORT) == (2, "", f"seqgen: {said}\n")


@pytest.mark.long
def test_trackio_has_the_figures(text, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio", reason="trackio is not installed")
    options = {"hidden_size": 8, "num_layers": 1, "steps": 6, "validate_every": 3, "seed": 1}
    seqgen.train(text, name="x", architecture="rnn", log="trackio", **options)
    (place,) = (tmp_path / "trackio").glob("*.db")
    with sqlite3.connect(place) as file:
        rows = file.execute("select step, metrics from metrics order by step").fetchall()
    found = [(step, json.loads(row)) for step, row in rows]
    wanted = [r for r in store.find("x").logged(store.METRICS) if "val_loss" in r]
    losses = [(step, row["val_loss"]) for step, row in found if "val_loss" in row]
    assert losses == [(r["step"], pytest.approx(r["val_loss"])) for r in wanted]
    assert any("sample" in row for _, row in found)


@pytest.mark.long
def test_wandb_keeps_the_run_offline(text, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    options = {"hidden_size": 8, "num_layers": 1, "steps": 6, "validate_every": 3, "seed": 1}
    said = []
    seqgen.train(text, name="x", architecture="rnn", log="wandb", report=said.append, **options)
    assert not [event for event in said if isinstance(event, Notice)]
    wandb.teardown()  # waits for its service, which writes the file
    (place,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    content = place.read_bytes()
    for part in (b"val_loss", b"grad_norm", b"sample", b"hidden_size", b"result/val_loss"):
        assert part in content
