"""Whatever happens to a run or to its folder: one line, and the last good state goes on."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import pytest
import torch
from forked import training_processes
from safetensors.torch import load_file

from seqgen import store
from seqgen.errors import Interrupted, SeqgenError
from seqgen.store import StoredModel, manifest
from seqgen.store.loading import load
from seqgen.training import session
from seqgen.training.events import Notice, SampleLine
from seqgen.training.resume import resume
from seqgen.training.train import train
from seqgen.training.validations import TextValidation

TEXT = "so it goes on and on, and it ends so.\n" * 40
SETTINGS = {
    "hidden_size": 8,
    "num_layers": 1,
    "seq_len": 6,
    "batch_size": 3,
    "dropout": 0.2,
    "seed": 5,
    "precision": "float32",
    "steps": 8,
    "validate_every": 3,
    "checkpoint_every": 1,
}


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def begun(text, name="part", stop_after=4, **more) -> StoredModel:
    train([text], name=name, settings={**SETTINGS, **more}, stop_after=stop_after)
    return store.find(name)


def one_line(caught) -> str:
    message = str(caught.value)
    assert message and "\n" not in message
    assert caught.value.exit_code == 1
    return message


def assert_ends_as_unbroken(stored, text, **more):
    """Resume, and compare with a run that nothing happened to."""
    resume(stored.path)
    whole = begun(text, "unbroken", None, **more)
    for part in (store.WEIGHTS, f"{store.CHECKPOINTS}/{store.LAST}"):
        wanted, found = load_file(whole.path / part), load_file(stored.path / part)
        assert wanted.keys() == found.keys()
        assert all(torch.equal(wanted[name], found[name]) for name in wanted), part
    assert steps_logged(stored) == steps_logged(whole)


def steps_logged(stored, part=store.METRICS):
    """Return the steps of validations (which fall on step numbers only), or of samples."""
    records = map(json.loads, (stored.path / part).read_text().splitlines())
    return [record["step"] for record in records if "train_loss" not in record]


# ---- full disks, folders that cannot be written ----


@contextlib.contextmanager
def largest_file(size):
    """Let no file grow beyond `size` bytes, as if the disk were full there."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("where", ["weights", "checkpoint"])
def test_a_full_disk(where, text):
    stored = begun(text, stop_after=5)
    checkpoint = (stored.path / store.CHECKPOINTS / store.LAST).stat().st_size
    before = (stored.path / store.WEIGHTS).read_bytes()
    assert len(before) < checkpoint - 500
    room = {"weights": len(before) - 1, "checkpoint": checkpoint - 500}[where]
    with largest_file(room), pytest.raises(SeqgenError, match="cannot be written: File") as caught:
        resume("part")
    assert "what was saved before is whole" in one_line(caught)
    if where == "weights":
        assert (stored.path / store.WEIGHTS).read_bytes() == before
    assert load("part").model
    assert_ends_as_unbroken(stored, text)


def test_a_log_that_cannot_grow(text):
    stored = begun(text)
    size = (stored.path / store.METRICS).stat().st_size
    with (
        largest_file(size + 10),
        pytest.raises(SeqgenError, match=r"metrics\.jsonl cannot be written") as caught,
        stored.log(store.METRICS) as log,
    ):
        log.write({"step": 9, "a line": "longer than that"})
    assert one_line(caught)
    assert (stored.path / store.METRICS).stat().st_size > size
    assert_ends_as_unbroken(stored, text)


def test_a_disk_that_is_full_from_the_start_leaves_nothing(text):
    with largest_file(300), pytest.raises(SeqgenError, match="cannot be written") as caught:
        begun(text)
    assert one_line(caught)
    assert not (store.models_folder() / "part").exists()


@contextlib.contextmanager
def read_only(folder):
    """Take the right to write away, from root too."""
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="rights are POSIX's")
def test_a_folder_that_cannot_be_written(monkeypatch):
    # Not in pytest's own folder, which only its owner may read.
    folder = Path(tempfile.mkdtemp())
    monkeypatch.setenv("SEQGEN_HOME", str(folder / "home"))
    try:
        (folder / "text.txt").write_text(TEXT)
        stored = begun(folder / "text.txt")
        with read_only(folder):
            with pytest.raises(SeqgenError, match="cannot be written: Permission denied") as caught:
                resume("part")
            assert str(stored.path) in one_line(caught)
            assert load("part").model
            with pytest.raises(SeqgenError, match="cannot be written: Permission denied") as caught:
                begun(folder / "text.txt", "other")
            assert one_line(caught)
        assert_ends_as_unbroken(stored, folder / "text.txt")
    finally:
        shutil.rmtree(folder)


# ---- damage ----


def flipped(content: bytes) -> bytes:
    """Return the content with one bit changed where tensors are."""
    return content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]


DAMAGE = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "a byte short": lambda content: content[:-1],
    "a bit flipped": flipped,
    "something else": lambda content: b"{}" * 100,
}


def damage(path, how):
    content = DAMAGE[how](path.read_bytes())
    path.unlink()  # a kept checkpoint may be the same file under another name
    if content is not None:
        path.write_bytes(content)


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_the_model_is_usable(how, text):
    stored = begun(text)
    damage(stored.path / store.CHECKPOINTS / store.LAST, how)
    with pytest.raises(SeqgenError, match=r"last\.safetensors.*missing or damaged") as caught:
        resume("part")
    assert "the model itself is usable" in one_line(caught)
    assert load("part").model


@pytest.mark.fast_for("missing", "a bit flipped", rest="slow")
@pytest.mark.parametrize("how", DAMAGE)
def test_an_earlier_checkpoint_stands_in_for_a_damaged_one(how, text):
    stored = begun(text, keep=3)
    damage(stored.path / store.CHECKPOINTS / store.LAST, how)
    damage(stored.path / store.CHECKPOINTS / "step-000000004.safetensors", how)
    events = []
    resume("part", stop_after=5, report=events.append)
    said = [event.text for event in events if isinstance(event, Notice)]
    assert any(line.endswith("going on from step-000000003.safetensors") for line in said)
    assert_ends_as_unbroken(stored, text, keep=3)
    kept = sorted(path.name for path in (stored.path / store.CHECKPOINTS).iterdir())
    assert kept == ["last.safetensors", *(f"step-00000000{n}.safetensors" for n in (6, 7, 8))]


@pytest.mark.fast_for("2", rest="slow")
@pytest.mark.parametrize("keep", [1, 2, 5])
def test_so_many_checkpoints_are_kept(keep, text):
    stored = begun(text, stop_after=None, keep=keep)
    last, *earlier = (stored.path / store.CHECKPOINTS / store.LAST, *stored.earlier_checkpoints())
    assert len(earlier) == (keep if keep > 1 else 0)
    for path, step in zip(earlier, range(8, 0, -1), strict=False):
        tensors = load_file(path)
        ends = step == SETTINGS["steps"]  # and is validated there, unlike a run that is cut short
        shorter = begun(text, f"to-{step}-{keep}", None if ends else step)
        wanted = load_file(shorter.path / store.CHECKPOINTS / store.LAST)
        assert [n for n in wanted if not torch.equal(tensors[n], wanted[n])] == []
    assert last.exists()
    named = {part for part in manifest.read(stored.path) if part.startswith(store.CHECKPOINTS)}
    assert named == {f"{store.CHECKPOINTS}/{path.name}" for path in (last, *earlier)}


PARTS = [store.WEIGHTS, store.CONFIG, "tokenizer/tokenizer.json", store.RECORD]


@pytest.mark.fast_for("model.safetensors", "training.json", rest="slow")
@pytest.mark.parametrize("part", [*PARTS, store.VALIDATION])
def test_what_the_manifest_does_not_know_is_one_line(part, text):
    begun(text, "good")
    stored = begun(text)
    path = stored.path / part
    content = path.read_bytes()
    # Still whole, and still of the same length: nothing but its hash tells.
    new = flipped(content) if part == store.WEIGHTS else content.replace(b"5", b"6", 1)
    path.write_bytes(content.replace(b"s", b"t", 1) if new == content else new)
    for use in (lambda: load("part"), lambda: resume("part")):
        with pytest.raises(SeqgenError, match=r"is not what manifest\.json says") as caught:
            use()
        assert str(path) in one_line(caught)
    assert load().stored.name == "good"  # the latest that is whole
    path.write_bytes(content)
    assert load().stored.name == "part"
    assert_ends_as_unbroken(stored, text)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"files": [1]}', '{"files": {"a": 3}}'])
def test_a_damaged_manifest_is_one_line(content, text):
    stored = begun(text)
    (stored.path / manifest.MANIFEST).write_text(content)
    for use in (load, resume):
        with pytest.raises(SeqgenError, match=r"manifest\.json is damaged") as caught:
            use("part")
        assert "usable" not in one_line(caught)


def test_a_model_that_changes_while_it_is_checked(text, monkeypatch):
    """Read before and hashed after: what came in between is no damage."""
    stored = begun(text)
    hashed = []

    def replaced_meanwhile(path):
        if path.name == store.WEIGHTS and not hashed:
            hashed.append(path)
            stored.write_weights(load("other").model)
        return digest_of(path)

    begun(text, "other", 2)
    digest_of = manifest.digest_of
    monkeypatch.setattr(manifest, "digest_of", replaced_meanwhile)
    stored.check()
    assert hashed


def test_a_folder_without_a_manifest_gets_one_when_it_goes_on(text):
    stored = begun(text)
    (stored.path / manifest.MANIFEST).unlink()
    assert load("part").model
    assert_ends_as_unbroken(stored, text)
    stored.check()
    assert store.WEIGHTS in manifest.read(stored.path)


def test_a_checkpoint_of_another_model_is_one_line(text):
    """Only a folder without a manifest cannot tell before."""
    stored, other = begun(text), begun(text, "other", hidden_size=9)
    (stored.path / manifest.MANIFEST).unlink()
    last = Path(store.CHECKPOINTS) / store.LAST
    shutil.copy(other.path / last, stored.path / last)
    with pytest.raises(SeqgenError, match="does not fit its model") as caught:
        resume("part")
    assert "the model itself is usable" in one_line(caught)
    assert load("part").model


# ---- ends that are cut short ----


def patient(monkeypatch):
    """Let every validation but the first be a bad one; return the settings of such a run."""
    figure = {1: 1.0}
    monkeypatch.setattr(TextValidation, "quick", lambda self: figure.pop(1, 2.0))
    return {"steps": 50, "validate_every": 2, "patience": 2}


def test_a_longer_budget_brings_new_patience_also_where_the_last_validation_ended_it(
    text, monkeypatch
):
    stored = begun(text, stop_after=None, **{**patient(monkeypatch), "steps": 6})
    run = stored.read_checkpoint()[1]["run"]
    assert (run["stopped"], run["worse"]) == ("steps", 2)
    longer = resume("part", settings={"steps": 20})
    assert (longer.stopped, longer.steps) == ("patience", 10)


@pytest.mark.parametrize("reason", ["steps", "patience"])
def test_a_run_killed_after_its_last_step_ends_as_one_that_was_not(reason, text, monkeypatch):
    """Everything is trained and saved, and only the final record is missing."""
    more = patient(monkeypatch) if reason == "patience" else {"validate_every": 5}
    whole = begun(text, "whole", None, **more)
    more = patient(monkeypatch) if reason == "patience" else more

    def killed(self, run):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(session.Session, "_result", killed)
        with pytest.raises(SystemExit):
            begun(text, stop_after=None, **more)
    stored = store.find("part")
    assert stored.record["result"] is None
    result = resume("part")
    assert (result.steps, result.stopped) == ({"steps": 8, "patience": 6}[reason], reason)
    for part in (store.METRICS, store.SAMPLES):
        assert steps_logged(stored, part) == steps_logged(whole, part)
    for part in (store.WEIGHTS, f"{store.CHECKPOINTS}/{store.LAST}"):
        wanted, found = load_file(whole.path / part), load_file(stored.path / part)
        assert all(torch.equal(wanted[name], found[name]) for name in wanted), part


def test_stopping_at_the_very_last_step_adds_no_validation(text):
    stored = begun(text, stop_after=8, validate_every=4)
    resume("part")
    assert steps_logged(stored) == [4, 8]


@pytest.mark.parametrize("validated", [True, False])
@pytest.mark.parametrize("problem", [SeqgenError("diverged"), KeyboardInterrupt()])
def test_what_a_validation_chose_outlives_a_run_without_a_checkpoint(problem, validated, text):
    """An untrained model is no loss."""

    def fail(event):
        if isinstance(event, SampleLine) and event.step == (6 if validated else 0):
            raise problem

    more = {**SETTINGS, "checkpoint_every": None}
    interrupted = isinstance(problem, KeyboardInterrupt) and validated
    with pytest.raises(Interrupted if interrupted else type(problem)) as raised:
        train([text], name="part", settings=more, report=fail)
    assert (store.models_folder() / "part").exists() == validated
    assert ("seqgen train --resume part" in str(raised.value)) == interrupted
    if validated:
        assert load("part").model


def test_a_write_that_was_announced_and_never_made(text):
    """Killed between the manifest and the file: the old file still counts, now and later."""
    stored = begun(text)
    for number in range(3):
        manifest.announce(stored.path, {store.WEIGHTS: f"never written {number}"})
        assert load("part").model
        stored.keep_current_hashes()
    assert len(manifest.read(stored.path)[store.WEIGHTS]) == 1
    assert_ends_as_unbroken(stored, text)


def test_logs_go_back_to_the_checkpoint(text):
    stored = begun(text)
    for part in (store.METRICS, store.SAMPLES):
        with (stored.path / part).open("a") as file:
            file.write('{"step": 5, "later": true}\n{"step": 6, "later": tr')
    assert_ends_as_unbroken(stored, text)
    assert steps_logged(stored, store.SAMPLES) == [0, 3, 6, 8]
    for part in (store.METRICS, store.SAMPLES):
        assert "later" not in (stored.path / part).read_text()
    assert not list(stored.path.rglob(".*.tmp"))


# ---- SIGKILL ----


def go_on(home, name):
    """Resume a run in a process of its own."""
    os.environ["SEQGEN_HOME"] = home
    torch.set_num_threads(1)
    session.SAMPLE_TOKENS = 4
    resume(name)


def half_written(stored):
    return list((stored.path / store.CHECKPOINTS).glob(".*.tmp"))


@pytest.mark.parametrize(
    "kills", [pytest.param(4, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.long)]
)
def test_kills_at_random_moments_lose_nothing(kills, text, home, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # for the processes to be
    steps = 400 + 80 * kills
    settings = {**SETTINGS, "hidden_size": 64, "steps": steps, "checkpoint_every": 3, "keep": 2}
    settings |= {"validate_every": 50, "accumulate": 2, "ema": 0.9}
    stored = begun(text, "killed", 3, **settings)
    processes = training_processes()
    draw, writing = random.Random(0), 0
    for kill in range(kills):
        before = stored.read_checkpoint()[1]["run"]["step"]
        last = stored.path / store.CHECKPOINTS / store.LAST
        mark = last.stat().st_mtime_ns
        process = processes.Process(target=go_on, args=(str(home), str(stored.path)))
        process.start()
        deadline = time.monotonic() + 60
        while last.stat().st_mtime_ns == mark:
            assert process.is_alive() and time.monotonic() < deadline
        time.sleep(draw.uniform(0, 0.1))
        while kill % 2 and not half_written(stored):
            assert process.is_alive() and time.monotonic() < deadline
        process.kill()
        process.join()
        writing += bool(half_written(stored))
        assert load("killed").model
        assert stored.read_checkpoint()[1]["run"]["step"] > before
    assert writing > 0
    assert before < steps - 100
    assert_ends_as_unbroken(stored, text, **settings)
