"""Training listeners that pass a run's settings, figures and samples on to trackers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from seqgen import store
from seqgen.errors import first_line
from seqgen.plugins.trackers.tracker import Tracker
from seqgen.settings import flatten_settings
from seqgen.training.events import Event, Notice, Progress, SampleLine, Validated
from seqgen.training.listeners import RunFacts
from seqgen.training.run import Listener

PROGRESS = ("train_loss", "lr", "grad_norm", "tokens_per_second")
# What trackers raise when they fail; some end the program. Ctrl-C is none of them.
FAILURES = (Exception, SystemExit)


# What has been closed by the end of training, and waits for the result of the final validation.
_ended: list[TrackerListener] = []


def finish_all() -> None:
    """Log the result to the trackers of the run that has ended, and close them."""
    while _ended:
        _ended.pop(0).finish()


class TrackerListener(Listener):
    """Passes the events of a run on to a tracker.

    Args:
        name: of the tracker.
        facts: of the run.
        open_tracker: returns the tracker; called at the first event.
    """

    def __init__(
        self, name: str, facts: RunFacts, open_tracker: Callable[[RunFacts], Tracker]
    ) -> None:
        self._name, self._facts = name, facts
        self._open = open_tracker
        self._tracker: Tracker | None = None
        self._has_failed = False

    def take(self, event: Event) -> None:
        if self._has_failed:
            return
        try:
            self._take(event)
        except FAILURES as error:
            why = f"{type(error).__name__}: {first_line(error)}"
            self._give_up(f"{self._name} no longer logs this run: {why}")

    def _give_up(self, why: str) -> None:
        """Warn that the tracker has failed, and give it nothing more; the run goes on."""
        self._has_failed, tracker, self._tracker = True, self._tracker, None
        self._facts.report(Notice(text=f"warning: {why}"))
        if tracker is not None:
            with contextlib.suppress(*FAILURES):
                tracker.abandon()

    def _take(self, event: Event) -> None:
        if self._tracker is None:
            tracker = self._open(self._facts)
            tracker.begin(self._settings())
            self._tracker = tracker
        if isinstance(event, Progress):
            figures = {name: getattr(event, name) for name in PROGRESS}
            self._tracker.log({**figures, **event.figures}, event.step)
        elif isinstance(event, Validated):
            self._tracker.log({"val_loss": event.val_loss, **event.figures}, event.step)
        elif isinstance(event, SampleLine):
            self._tracker.log_sample(event.text, event.step)

    def _settings(self) -> dict[str, Any]:
        return {"name": self._facts.stored.name, **flatten_settings(self._facts.stored.config)}

    def close(self) -> None:
        if self._tracker is not None:
            _ended.append(self)

    def finish(self) -> None:
        """Log the model's result, if there is one, and close the run; warn if that fails."""
        if self._tracker is not None:
            try:
                self._tracker.finish(store.result_of(self._facts.stored))
            except FAILURES as error:
                self._give_up(f"{self._name} has not all of this run: {first_line(error)}")


def _listener(
    name: str, facts: RunFacts, open_tracker: Callable[[RunFacts], Tracker]
) -> TrackerListener | None:
    """Return a listener for a tracker if it is asked for; close what a failed run left open."""
    if name not in facts.options.trackers:
        return None
    finish_all()
    return TrackerListener(name, facts, open_tracker)


def tensorboard(facts: RunFacts) -> Listener | None:
    """Log for TensorBoard, into the model's folder, with `--log tensorboard`."""

    def open_board(facts: RunFacts) -> Tracker:
        from seqgen.plugins.trackers.board import Board

        return Board(facts)

    listener = _listener("tensorboard", facts, open_board)
    if listener is not None:
        from seqgen.plugins.trackers.board import check_place

        check_place(facts.stored)
    return listener


def trackio(facts: RunFacts) -> Listener | None:
    """Log for trackio, on this machine, with `--log trackio`."""

    def open_trackio(facts: RunFacts) -> Tracker:
        from seqgen.plugins.trackers.trackio_run import TrackioRun

        return TrackioRun(facts)

    return _listener("trackio", facts, open_trackio)


def wandb(facts: RunFacts) -> Listener | None:
    """Log for Weights & Biases, on this machine unless WANDB_MODE=online, with `--log wandb`."""

    def open_wandb(facts: RunFacts) -> Tracker:
        from seqgen.plugins.trackers.wandb_run import WandbRun

        return WandbRun(facts)

    return _listener("wandb", facts, open_wandb)
