"""A new model is built out of sight, and takes its place with its first checkpoint."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT, TESTS

from seqgen import store
from seqgen.cli import run
from seqgen.errors import Interrupted, SeqgenError
from seqgen.store import StoredModel
from seqgen.store.loading import load
from seqgen.store.ownership import mark, mark_ready
from seqgen.training import loop, session
from seqgen.training.events import Notice, Progress, SampleLine, Started, Validated
from seqgen.training.resume import resume
from seqgen.training.train import train

FULL = r"cannot be written: .*; m is as it was"
TEXT = "so it goes on and on, and it ends so.\n" * 20
TINY = {
    "hidden_size": 4,
    "num_layers": 1,
    "seq_len": 6,
    "batch_size": 3,
    "seed": 5,
    "precision": "float32",
    "steps": 4,
    "validate_every": 2,
}


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def exchange():
    return pytest.importorskip("seqgen.plugins.exchange.exchange")


@pytest.fixture
def arpa(exchange, text, tmp_path) -> Path:
    train([text], architecture="ngram", name="source", settings={"order": 2})
    exchange.export_model(load("source"), "arpa", tmp_path / "m.arpa")
    store.remove(store.find("source"))
    return tmp_path / "m.arpa"


def trained(text, name="m", overwrite=False, report=lambda event: None, **more):
    return train([text], name=name, settings={**TINY, **more}, overwrite=overwrite, report=report)


def entries():
    """Return what is in the models' folder, hidden folders too."""
    return sorted(path.name for path in store.models_folder().glob("*"))


@pytest.fixture
def old(text):
    """A model that is to be replaced; afterwards it must be what it was."""
    trained(text)
    stored = store.find("m")
    digest = stored.digest
    yield stored
    assert StoredModel(stored.path).digest == digest
    assert load("m").model
    stored.check()
    assert entries() == ["m"]


@contextlib.contextmanager
def full_disk(size=300):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# ---- what is to be replaced stays when the new one comes to nothing ----


@pytest.mark.parametrize("val", ["0.1", "none"])
def test_a_new_run_that_diverges(old, text, val, monkeypatch):
    monkeypatch.setattr(loop, "rate", lambda config, share, number, warmed: math.inf)
    monkeypatch.setattr(loop, "LOG_SECONDS", math.inf)
    with pytest.raises(SeqgenError, match=r"diverged after step 1 .*\(m is as it was\)"):
        trained(text, overwrite=True, val=val)


def test_a_new_run_that_is_interrupted_before_its_first_step(old, text, monkeypatch):
    monkeypatch.setattr(session.Session, "_reason_to_stop", lambda *_: "interrupted")
    with pytest.raises(Interrupted, match=r"^interrupted; nothing saved yet$"):
        trained(text, overwrite=True)


@pytest.mark.parametrize("kind", [Started, SampleLine])
def test_a_new_run_that_is_broken_off_at_once(old, text, kind):
    def break_off(event):
        if isinstance(event, kind):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(text, overwrite=True, report=break_off)


@pytest.mark.fast_for("lstm-300", "ngram-30", rest="slow")
@pytest.mark.parametrize("size", [30, 300, 700])
@pytest.mark.parametrize("architecture", ["lstm", "ngram"])
def test_a_new_run_that_finds_the_disk_full(old, text, size, architecture):
    settings = TINY if architecture == "lstm" else {"order": 3}
    with full_disk(size), pytest.raises(SeqgenError, match=FULL):
        train([text], architecture=architecture, name="m", overwrite=True, settings=settings)


@pytest.mark.parametrize("size", [30, 300])
def test_an_import_that_finds_the_disk_full(exchange, arpa, text, old, size):
    with full_disk(size), pytest.raises(SeqgenError, match=FULL):
        exchange.import_model(arpa, name="m", overwrite=True)


def test_an_import_of_a_broken_file(exchange, arpa, text, old):
    arpa.write_text(arpa.read_text().replace("\\2-grams:", "\\3-grams:"))
    with pytest.raises(SeqgenError):
        exchange.import_model(arpa, name="m", overwrite=True)


def test_a_folder_with_strangers_is_not_replaced(old, text):
    (old.path / "notes.txt").write_text("mine")
    with pytest.raises(SeqgenError, match=r"did not write \(notes\.txt\)"):
        trained(text, overwrite=True)
    (old.path / "notes.txt").unlink()


# ---- and goes when the new one is worth it ----


@pytest.mark.fast_for("True-end", "False-best", rest="slow")
@pytest.mark.parametrize(
    ("more", "first"),
    [
        ({"checkpoint_every": 1}, 1),
        ({"validate_every": 2}, 2),
        ({"val": "none"}, 4),
    ],
    ids=["checkpoint", "best", "end"],
)
@pytest.mark.parametrize("overwrite", [True, False])
def test_when_a_model_takes_its_place(more, first, overwrite, text, monkeypatch):
    """At its first checkpoint, which comes with its first best weights at the latest."""
    monkeypatch.setattr(loop, "LOG_SECONDS", 0.0)
    place, steps = store.models_folder() / "m", []
    if overwrite:
        trained(text, hidden_size=3)
    before = [stored.digest for stored in store.list_models()]

    def look(event):
        assert not list(store.models_folder().glob(".*.gone"))
        there = [StoredModel(stored.path).digest for stored in store.list_models()]
        if there:  # whatever is listed can be resumed, were this the moment of a kill
            assert store.find("m").read_checkpoint()[1]["run"]["step"]
        if isinstance(event, Progress | Validated) and there != before:
            steps.append(event.step)
            with (
                pytest.raises(SeqgenError, match="m is being trained"),
                StoredModel(place).locked(),
            ):
                pass
        if isinstance(event, Started):
            assert event.name == "m"

    # A record comes before the checkpoint of the same step, and the end has none after it.
    shown = {1: [2, 2, 3, 4, 4], 2: [3, 4, 4], 4: []}[first]
    result = trained(text, overwrite=overwrite, report=look, **more)
    assert steps == shown
    assert (result.name, result.path) == ("m", str(place))
    assert entries() == ["m"]
    assert load("m").stored.digest not in before
    store.find("m").check()
    logged = [record["step"] for record in store.find("m").logged(store.METRICS)]
    assert sorted(set(logged)) == [1, 2, 3, 4]
    assert store.find("m").logged(store.SAMPLES)[0]["step"] == 0
    with store.find("m").locked():
        pass
    assert resume("m", settings={"steps": 6}).steps == 6


@pytest.mark.parametrize("how", ["count", "import"])
def test_counted_and_imported_models_take_their_place(how, exchange, arpa, text):
    trained(text)
    if how == "count":
        train([text], architecture="ngram", name="m", overwrite=True, settings={"order": 2})
    else:
        exchange.import_model(arpa, name="m", overwrite=True)
    assert load("m").architecture == "ngram"
    store.find("m").check()
    assert entries() == ["m"]


def test_a_link_is_replaced_and_what_it_led_to_stays(text, tmp_path):
    trained(text, "elsewhere")
    elsewhere = store.find("elsewhere").path.rename(tmp_path / "elsewhere")
    (store.models_folder() / "m").symlink_to(elsewhere)
    trained(text, overwrite=True, hidden_size=3)
    assert not (store.models_folder() / "m").is_symlink()
    assert StoredModel(elsewhere).digest != store.find("m").digest
    assert entries() == ["m"]


# ---- names ----


def test_runs_at_once_have_names_of_their_own(text):
    names = []

    def second(event):
        if isinstance(event, Started):
            names.append(event.name)
            if len(names) < 3:
                trained(text, None, report=second)

    trained(text, None, report=second)
    assert names == ["text-lstm", "text-lstm-2", "text-lstm-3"]
    assert entries() == sorted(names)


@pytest.mark.parametrize("overwrite", [True, False])
def test_two_runs_at_once_cannot_make_the_same_model(text, overwrite):
    def second(event):
        if isinstance(event, Started):
            with pytest.raises(SeqgenError, match="m is being trained by another run"):
                trained(text, overwrite=overwrite)

    trained(text, report=second)
    assert entries() == ["m"]


def test_what_has_come_to_the_place_meanwhile_stays(text, tmp_path):
    trained(text, "other", hidden_size=3)
    other = store.find("other").digest

    def copied(event):
        if isinstance(event, Started):
            shutil.copytree(store.find("other").path, store.models_folder() / "m")

    result = trained(text, report=copied)
    assert result.name == Path(result.path).name == "m-2"
    assert store.find("m").digest == other != store.find("m-2").digest


# ---- what killed runs leave ----


@pytest.fixture
def killed(text):
    """Return what leaves a folder aside as a killed run does: `new` or `gone`."""
    trained(text, "origin")

    def leave(kind, name="m", ready=False):
        path = store.models_folder() / f".{name}.{secrets.token_hex(4)}.{kind}"
        shutil.copytree(store.find("origin").path, path)
        mark(path, path.name)
        if ready:
            mark_ready(path)
        return path

    return leave


def test_a_model_in_the_making_is_nowhere_to_be_seen(killed, text, capfd):
    left = killed("new")
    assert [stored.name for stored in store.list_models()] == ["origin"]
    with pytest.raises(SeqgenError, match="there is no model named 'm'"):
        store.find("m")
    assert load().stored.name == "origin"
    assert trained(text).name == "m"
    assert not left.exists()


@pytest.mark.parametrize("look", [lambda: store.find("m"), store.list_models, store.clean])
def test_a_replacement_that_was_broken_off_is_completed_at_once(look, killed, text):
    """The old model was moved away already, and the new one was complete."""
    left = killed("new", ready=True)
    look()
    assert not left.exists()
    assert store.find("m").digest == store.find("origin").digest
    with pytest.raises(SeqgenError, match="--overwrite"):
        trained(text)


def test_what_was_about_to_replace_another_does_not_once_a_third_has_its_place(killed, text):
    trained(text, hidden_size=3)
    left, before = killed("new", ready=True), store.find("m").digest
    assert store.list_models() and store.find("m").digest == before
    store.clean()
    assert not left.exists() and store.find("m").digest == before


@pytest.mark.parametrize("how", ["remove", "rename"])
def test_what_was_about_to_replace_a_model_does_not_once_that_has_gone(how, killed, text):
    trained(text, hidden_size=3)
    killed("new", ready=True)
    if how == "remove":
        store.remove(store.find("m"))
    else:
        store.rename(store.find("m"), "renamed")
    left = ["origin"] if how == "remove" else ["origin", "renamed"]
    assert sorted(stored.name for stored in store.list_models()) == entries() == left


@pytest.mark.parametrize("how", ["cache", "train", "resume"])
def test_the_next_run_clears_up(how, killed, text, capfd):
    trained(text)
    train([text], name="part", settings=TINY, stop_after=1)
    with store.building("living", "stem", overwrite=False):
        killed("new"), killed("gone"), killed("gone")
        if how == "cache":
            assert run(["models", "cache", "--clear"]) == 0
            assert "removed 3 leftovers of runs that were killed" in capfd.readouterr().err
        elif how == "train":
            trained(text, "next")
        else:
            resume("part")
        (living,) = (name for name in entries() if name[0] == ".")
        assert living.startswith(".living.")
    assert not [name for name in entries() if name[0] == "."]


def test_what_a_user_has_put_into_a_hidden_folder_stays(killed, text):
    left = killed("new")
    (left / "notes.txt").write_text("mine")
    store.clean()
    assert (left / "notes.txt").read_text() == "mine"
    assert trained(text).name == "m"  # and the name is not blocked


def test_a_copy_of_what_is_put_aside_is_the_users(killed):
    """The mark says the name of the folder that it is in."""
    copies = [".m.new", ".m.old", ".m.0123abcd.new", ".m.0123abcd.gone", ".m2.0123abcd.gone"]
    left = killed("new", ready=True)
    for name in copies:
        shutil.copytree(left, left.with_name(name))
    shutil.rmtree(left)
    assert [stored.name for stored in store.list_models()] == ["origin"]
    assert store.clean() == []
    assert entries() == sorted([*copies, "origin"])


@pytest.mark.parametrize("content", [None, "", ".half"])
def test_a_kill_while_a_hidden_folder_gets_or_loses_its_mark(content, text):
    """Its name was written down before, so the next run knows it; any other such folder stays."""
    trained(text)
    ours, other = (store.models_folder() / f".m.0123abc{digit}.new" for digit in "de")
    for folder in (ours, other):
        folder.mkdir()
        if content is not None:
            (folder / store.LOCK).write_text(content)
    (store.home() / "models.lock").write_text(ours.name)
    store.clean()
    assert entries() == [other.name, "m"]
    assert (store.home() / "models.lock").read_text() == ""


# ---- the best weights ----


def test_resuming_from_the_cache_of_another_run_keeps_the_best(text, monkeypatch, tmp_path):
    """Of the same large text, which one run has read whole and the other with held-out text."""
    monkeypatch.setattr("seqgen.training.datasets.text.LARGE", 1)
    held_out = tmp_path / "val.txt"
    held_out.write_text("it ends, and so it goes.\n" * 3)
    trained(text, "a", val="none")
    more = {**TINY, "val": str(held_out), "steps": 6}
    train([text], name="b", settings=more, stop_after=4)
    before = json.loads((store.find("b").path / store.METRICS).read_text().splitlines()[-1])
    assert before["step"] <= 4
    events = []
    resumed = resume("b", report=events.append)
    whole = train([text], name="whole", settings=more)
    assert [event.step for event in events if isinstance(event, Validated)] == [6]
    assert not [event for event in events if isinstance(event, Notice)]
    assert (resumed.val_loss, resumed.best_step) == (whole.val_loss, whole.best_step)
    assert store.find("b").digest == store.find("whole").digest


def test_what_was_held_out_then_counts_although_the_file_is_another(text, monkeypatch, tmp_path):
    monkeypatch.setattr("seqgen.training.datasets.text.LARGE", 1)
    held_out = tmp_path / "val.txt"
    held_out.write_text("it ends, and so it goes.\n" * 3)
    more = {**TINY, "val": str(held_out)}
    train([text], name="b", settings=more, stop_after=2)
    whole = train([text], name="whole", settings=more)
    held_out.write_text("so it ends, and on it goes, and on.\n")
    train([text], name="c", settings=more)  # this one is in the cache now
    assert resume("b").val_loss == whole.val_loss


def test_weights_are_never_chosen_without_a_loss_where_one_has_chosen(text, monkeypatch):
    train([text], name="b", settings={**TINY, "validate_every": 1}, stop_after=1)
    stored = store.find("b")
    best = StoredModel(stored.path).digest
    hooks = session.Hooks
    monkeypatch.setattr(session, "Hooks", lambda **k: hooks(**{**k, "validate": None}))
    resume("b")
    assert StoredModel(stored.path).digest == best


# ---- SIGKILL ----


@pytest.mark.parametrize(
    "count", [pytest.param(15, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.long)]
)
def test_kills_lose_nothing(count):
    done = subprocess.run(
        [sys.executable, TESTS / "kill.py", str(count), "--seed", "7"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{count} SIGKILLs (")
