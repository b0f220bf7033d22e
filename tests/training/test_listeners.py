"""Listeners to training: what they are told and may keep, and that none can harm a run."""

from __future__ import annotations

import contextlib
import dataclasses
import json

import pytest
import torch
from helpers_cli import refusal

from seqgen import hooks, store
from seqgen.cli import run
from seqgen.errors import UsageError
from seqgen.training.events import ListenerEvent, Notice, Progress, SampleLine, Started, Validated
from seqgen.training.listeners import LastEvents, Listeners, RunFacts
from seqgen.training.resume import resume
from seqgen.training.run import Diverged, Hooks, Listener, Run
from seqgen.training.train import train

SETTINGS = {"hidden_size": 4, "num_layers": 1, "seq_len": 6, "steps": 6, "seed": 1}
SETTINGS |= {"precision": "float32", "validate_every": 3}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "cat.txt"
    path.write_text("the cat sat on the mat\n" * 40)
    return path


@pytest.fixture
def listening(monkeypatch):
    """Have these listeners, in the place of those of plugins."""
    return lambda *found: monkeypatch.setattr(hooks, "listeners", lambda: [*found])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counted(ListenerEvent):
    step: int
    updates: int

    def summary(self):
        return [f"updates seen: {self.updates}"]


class Counter(Listener):
    """Counts updates, also those before its run was stopped, and reports the number."""

    def __init__(self, facts):
        self.facts, self.updates, self.events, self.closed = facts, 0, [], False

    @contextlib.contextmanager
    def updating(self, run, batch):
        before = [p.detach().clone() for p in self.facts.model.parameters()]
        yield
        after = self.facts.model.parameters()
        assert not all(map(torch.equal, before, after)) and run.step == self.updates
        self.updates += 1

    def stepped(self, run, loss, norm):
        assert run.step == self.updates and loss > 0 and norm > 0
        if run.step % 2 == 0:
            self.facts.report(Counted(step=run.step, updates=self.updates))

    def take(self, event):
        self.events.append(event)

    def parts(self):
        return {"counter": self}

    def tensors(self):
        return {"updates": torch.tensor(self.updates)}

    def restore(self, tensors):
        self.updates = int(tensors["updates"])

    def close(self):
        self.closed = True


def weights(name):
    return (store.find(name).path / store.WEIGHTS).read_bytes()


def test_a_listener_sees_the_run_and_resumes_with_its_state(text, listening):
    made = []
    listening(("counting", lambda facts: made.append(Counter(facts)) or made[-1]))
    train([text], architecture="rnn", name="m", settings=SETTINGS, stop_after=3)
    resume("m")
    first, second = made
    assert (first.updates, second.updates) == (3, 6) and first.closed and second.closed
    assert (first.facts.step, second.facts.step) == (0, 3)
    assert first.facts.unit == "token" and first.facts.options is None
    assert first.facts.budget.steps == first.facts.config.steps == 6
    assert second.facts.stored.name == "m"
    kinds = {type(event) for event in second.events}
    assert kinds >= {Started, Progress, Validated, SampleLine, Counted}
    lines = (store.find("m").path / store.METRICS).read_text().splitlines()
    logged = [record for record in map(json.loads, lines) if "updates" in record]
    assert logged == [{"step": step, "updates": step} for step in (2, 4, 6)]


def test_the_last_event_is_shown_when_the_run_has_ended(text, listening, capsys):
    listening(("counting", Counter))
    flags = ["--hidden-size", "4", "--layers", "1", "--steps", "5", "--seed", "1", "--seq-len", "6"]
    assert run(["train", str(text), "--model", "rnn", *flags]) == 0
    assert capsys.readouterr().err.endswith("\nupdates seen: 4\n")


class Faulty(Listener):
    """Fails in one place, from the second time on."""

    def __init__(self, place):
        self.place, self.calls = place, 0

    def fault(self, place):
        if place == self.place:
            self.calls += 1
            if self.calls > 1 or place in ("close", "restore"):
                raise RuntimeError("out of luck\nand of more lines")

    @contextlib.contextmanager
    def updating(self, run, batch):
        self.fault("before")
        yield
        self.fault("after")

    def stepped(self, run, loss, norm):
        self.fault("stepped")

    def take(self, event):
        self.fault("take")

    def parts(self):
        self.fault("parts")
        return {"faulty": self}

    def tensors(self):
        self.fault("tensors")
        return {"zero": torch.zeros(1)}

    def restore(self, tensors):
        self.fault("restore")

    def close(self):
        self.fault("close")


@pytest.mark.fast_for("before", "stepped", "close", rest="slow")
@pytest.mark.parametrize(
    "place", ["before", "after", "stepped", "take", "parts", "tensors", "close"]
)
def test_a_listener_that_fails_costs_a_warning_and_not_the_run(place, text, listening):
    said, healthy = [], []
    report = lambda event: said.append(event.text) if isinstance(event, Notice) else None  # noqa: E731
    listening()
    settings = SETTINGS | {"checkpoint_every": 2}
    plain = train([text], architecture="rnn", name="plain", settings=settings)
    other = lambda facts: healthy.append(Counter(facts)) or healthy[-1]  # noqa: E731
    listening(("bad", lambda facts: Faulty(place)), ("good", other))
    found = train([text], architecture="rnn", name="m", settings=settings, report=report)
    assert (found.val_loss, found.steps) == (plain.val_loss, 6) and weights("m") == weights("plain")
    warnings = [line for line in said if line.startswith("warning")]
    assert warnings == ["warning: plugin bad no longer sees this run: RuntimeError: out of luck"]
    assert healthy[0].updates == 6


def test_a_state_that_a_listener_cannot_restore_costs_a_warning(text, listening):
    said = []
    listening(("bad", lambda facts: Faulty("")))
    train([text], architecture="rnn", name="m", settings=SETTINGS, stop_after=2)
    listening(("bad", lambda facts: Faulty("restore")))
    assert resume("m", report=said.append).steps == 6
    assert any(isinstance(e, Notice) and "plugin bad no longer sees" in e.text for e in said)


def test_errors_of_options_end_a_run_before_it_starts_and_faults_do_not(text, listening, capsys):
    def refuses(facts):
        raise UsageError("--losses names a folder")

    def breaks(facts):
        raise KeyError("x")

    listening(("strict", refuses))
    flags = ["--steps", 2, "--hidden-size", 4, "--seed", 1, "--name", "m"]
    assert "--losses names a folder" in refusal(capsys, "train", text, "--model", "rnn", *flags)
    assert not (store.models_folder() / "m").exists()
    listening(("broken", breaks), ("idle", lambda facts: None))
    assert run(["train", str(text), "--model", "rnn", *map(str, flags)]) == 0
    assert "warning: plugin broken no longer sees this run: KeyError" in capsys.readouterr().err


def test_an_error_of_the_update_passes_through_listeners(listening):
    said = []
    listening(("bad", lambda facts: Faulty("after")), ("none", lambda facts: None))
    listeners = Listeners(said.append)
    empty = dict.fromkeys(field.name for field in dataclasses.fields(RunFacts))
    listeners.open(lambda plugin: RunFacts(**empty))
    for _ in range(3):
        with pytest.raises(Diverged, match="as it is"), listeners.updating(Run(), None):
            raise Diverged("as it is")
    assert said == []


def test_a_part_of_the_core_is_never_replaced(text, listening):
    """A checkpoint keeps the model's own weights, whatever name a listener gives its state."""

    class Greedy(Counter):
        def parts(self):
            return {"model": self, "optimizer": self}

    listening()
    plain = train([text], architecture="rnn", name="plain", settings=SETTINGS)
    listening(("greedy", Greedy))
    train([text], architecture="rnn", name="m", settings=SETTINGS, stop_after=3)
    listening()
    assert resume("m").val_loss == plain.val_loss
    assert weights("m") == weights("plain")


def test_a_loop_without_listeners_has_one_that_ignores_all():
    listener = Hooks().listener
    assert listener.parts() == {}
    with listener.updating(Run(), None):
        pass
    listener.stepped(Run(), 1.0, 1.0)
    listener.close()


def test_of_a_run_the_fastest_second_is_remembered(text):
    """Other work on the machine slows some of them down; its mean would say little."""
    heard = []
    report = LastEvents(heard.append)
    train([text], architecture="lstm", settings=SETTINGS, report=report)
    speeds = [event.tokens_per_second for event in heard if isinstance(event, Progress)]
    assert report.fastest == max(speeds) > 0
