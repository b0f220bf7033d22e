"""How training looks: a live bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator

from seqgen.cli.output import console, is_terminal, say
from seqgen.training.events import (
    Encoding,
    Event,
    Notice,
    Progress,
    Report,
    SampleLine,
    Started,
    Validated,
)

# Off a terminal a line at least this often, so that a log stays short.
LINE_SECONDS = 15.0


@contextlib.contextmanager
def display(quiet: bool) -> Iterator[Report]:
    """Open a display on standard error that takes the events of a run."""
    if quiet:
        yield lambda event: None
    elif is_terminal(sys.stderr):
        with LiveDisplay() as live:
            yield live.take
    else:
        yield LineDisplay().take


def describe(event: Started) -> str:
    """Say in one line what is about to be trained."""
    config = event.training
    budget = f"{getattr(config, config.budget):g} {config.budget}"
    return (
        f"{event.name}: {event.architecture}, {event.parameters:,} parameters, "
        f"{event.vocab_size} tokens in the vocabulary; {event.train_tokens:,} to train on, "
        f"{event.val_tokens:,} held out; {budget}, {config.precision} on {event.device}, "
        f"seed {config.seed}"
    )


class Figures:
    """The figures both displays show."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.val_loss: float | None = None

    def bits_per_char(self, nats: float) -> float:
        """Return nats per token as bits per character."""
        return nats * self.started.tokens_per_char / math.log(2)

    def line(self, event: Progress) -> str:
        """Return loss, validation loss, bits per character and speed."""
        parts = [f"loss {event.train_loss:.4f}"]
        if self.val_loss is not None:
            parts.append(f"val {self.val_loss:.4f}")
            parts.append(f"{self.bits_per_char(self.val_loss):.3f} bits/char")
        parts.append(f"{event.tokens_per_second:,.0f} tokens/s")
        return "  ".join(parts)


class LineDisplay:
    """A line now and then."""

    def __init__(self) -> None:
        self._figures, self._said = Figures(), -math.inf

    def take(self, event: Event) -> None:
        """Show an event, if it is time."""
        if isinstance(event, Started):
            self._figures.started = event
            say(describe(event))
        elif isinstance(event, Notice):
            say(event.text)
        elif isinstance(event, Validated):
            self._figures.val_loss = event.val_loss
            bits = self._figures.bits_per_char(event.val_loss)
            best = " (best)" if event.best else ""
            say(f"step {event.step}  val {event.val_loss:.4f}  {bits:.3f} bits/char{best}")
        elif isinstance(event, SampleLine):
            say(f"  | {event.first_line}")
        elif isinstance(event, Progress) and time.monotonic() - self._said > LINE_SECONDS:
            self._said = time.monotonic()
            say(f"step {event.step}  {event.share:.0%}  {self._figures.line(event)}")


class LiveDisplay:
    """A bar with loss, speed and the time left; notices and samples scroll above it."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._figures, self._console = Figures(), console(sys.stderr)
        self._bar = Bar(
            TextColumn("step {task.fields[step]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[line]}"),
            TimeElapsedColumn(),
            TextColumn("ETA {task.fields[left]}"),
            console=self._console,
            transient=True,
        )

    def __enter__(self) -> LiveDisplay:
        self._bar.start()
        self._task = self._bar.add_task("", total=1.0, step=0, line="reading", left="-", start=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def take(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, Started):
            self._figures.started = event
            self._bar.console.print(describe(event))
            self._bar.update(self._task, line="")
        elif isinstance(event, Notice):
            self._bar.console.print(event.text)
        elif isinstance(event, Encoding):
            self._bar.update(self._task, completed=event.share, line="encoding")
        elif isinstance(event, Validated):
            self._figures.val_loss = event.val_loss
        elif isinstance(event, SampleLine):
            self._bar.console.print(f"{event.step:>7} │ {event.first_line}", style="dim")
        elif isinstance(event, Progress):
            left = event.seconds * (1 / event.share - 1) if event.share else 0.0
            self._bar.update(
                self._task,
                completed=event.share,
                step=event.step,
                line=self._figures.line(event),
                left=f"{int(left // 60)}:{int(left % 60):02}",
            )
