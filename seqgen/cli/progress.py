"""How training looks: a live bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator

from seqgen.cli.output import Output, console, is_terminal, say
from seqgen.cli.tables import clock, count, figure, percentage
from seqgen.training.events import (
    EncodingProgress,
    Event,
    Iteration,
    Notice,
    Report,
    SampleLine,
    Started,
    Validated,
)
from seqgen.wording import plural

# Off a terminal, seconds between two lines of progress: a log stays short.
LINE_SECONDS = 15.0


@contextlib.contextmanager
def display(out: Output) -> Iterator[Report]:
    """Open a display on standard error that takes the events of a run."""
    if out.quiet:
        yield lambda event: None
    elif is_terminal(sys.stderr):
        with LiveDisplay(out.verbose) as live:
            yield live.take
    else:
        yield LineDisplay(out.verbose).take


def describe(event: Started) -> str:
    """Return one line about the run that begins: what, how large, how long."""
    config = event.training
    budget = plural(getattr(config, config.budget), config.budget.removesuffix("s"))
    return (
        f"{event.name}: {event.architecture}, {plural(event.parameters, 'parameter')}; "
        f"{plural(event.train_tokens, event.unit)} to train on, {count(event.val_tokens)} held "
        f"out; {budget}, seed {config.seed}"
    )


def describe_further(event: Started) -> str:
    """Return one line about how it is trained."""
    vocabulary = f"{plural(event.vocab_size, 'token')} in the vocabulary"
    if event.source_vocab_size is not None:
        vocabulary = (
            f"{plural(event.source_vocab_size, 'token')} in the vocabulary of sources, "
            f"{count(event.vocab_size)} in that of targets"
        )
    return f"{vocabulary}; {event.training.precision} on {event.device}"


class Figures:
    """Formats the figures that both displays show."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.val_loss: float | None = None
        self.accuracy: float | None = None

    def validation(self, event: Validated) -> str:
        """Return a validation in one line, and remember it."""
        self.val_loss = event.val_loss
        self.accuracy = event.figures.get("accuracy")
        # Most validations are the best so far, so only the others are marked.
        worse = "" if event.best else "  (no better)"
        figures = "  ".join(self._validated())
        return f"step {count(event.step)}  {figures}{worse}"

    def _validated(self) -> list[str]:
        """Return the last validation's loss, and bits per character or the accuracy of labels.

        The loss of what is no language model is of no code of the text, and so in no such bits.
        """
        if self.val_loss is None:
            return []
        loss = f"val {figure(self.val_loss)}"
        if self.accuracy is not None:
            return [loss, f"{percentage(self.accuracy)} right"]
        bits = self.started.val_totals.with_loss(self.val_loss).bits_per_char
        return [loss] if bits is None else [loss, f"{figure(bits, 3)} bits/char"]

    def parts(self, event: Iteration) -> list[str]:
        """Return loss, validation loss, bits per character and speed, the most important first."""
        parts = [f"loss {figure(event.train_loss)}", *self._validated()]
        unit = self.started.unit if self.started else "token"
        return [*parts, f"{count(event.tokens_per_second)} {unit}s/s"]


class _Display:
    """Shows the events of a run; subclasses say lines and show what changes."""

    def __init__(self, verbose: bool = False) -> None:
        self._figures, self._verbose = Figures(), verbose

    def take(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, Started):
            self._figures.started = event
            self._say(describe(event))
            if self._verbose:
                self._say(describe_further(event))
        elif isinstance(event, Notice):
            if self._verbose or not event.detail:
                self._say(event.text)
        elif isinstance(event, Validated):
            self._say(self._figures.validation(event))
        self._show(event)

    def _say(self, line: str) -> None:
        """Write a line."""
        say(line)

    def _show(self, event: Event) -> None:
        """Show a sample, or how far the run is."""


class LineDisplay(_Display):
    """Plain lines, for a log: progress every few seconds, and every other event."""

    _said = -math.inf

    def _show(self, event: Event) -> None:
        if isinstance(event, SampleLine):
            say(f"  | {event.first_line}")
        elif isinstance(event, Iteration) and time.monotonic() - self._said > LINE_SECONDS:
            self._said = time.monotonic()
            figures = self._figures.parts(event)
            say("  ".join([f"step {count(event.step)}", percentage(event.share, 0), *figures]))


# Columns that the live line needs besides its figures: for the bar, and for the share of the budget
# that is spent with the time that is left.
LEAST_BAR, SHARE_AND_ETA = 12, 22


class LiveDisplay(_Display):
    """A bar with loss, speed and the time left; notices, validations and samples scroll above it.

    On a narrow terminal the last figures are left out. The bar, the loss and the time left are
    always shown.
    """

    def __init__(self, verbose: bool = False) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        super().__init__(verbose)
        self._console = console(sys.stderr)
        whole = {"table_column": Column(no_wrap=True)}
        self._bar = Bar(
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%", **whole),
            TextColumn("{task.fields[line]}", **whole),
            TextColumn("ETA {task.fields[left]}", **whole),
            console=self._console,
            transient=True,
            expand=True,
        )

    def __enter__(self) -> LiveDisplay:
        self._bar.start()
        self._task = self._bar.add_task("", total=1.0, line="reading", left="-", start=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _fitting(self, event: Iteration) -> str:
        """Return the figures that fit on the terminal's line, beginning with the loss."""
        loss, *others = self._figures.parts(event)
        room = self._console.width - LEAST_BAR - SHARE_AND_ETA
        line = loss
        for part in [*others, f"step {count(event.step)}"]:
            if len(line) + 2 + len(part) <= room:
                line += "  " + part
        return line

    def _say(self, line: str) -> None:
        self._bar.console.print(line)

    def _show(self, event: Event) -> None:
        if isinstance(event, Started):
            self._bar.update(self._task, line="")
        elif isinstance(event, EncodingProgress):
            self._bar.update(self._task, completed=event.fraction, line="encoding")
        elif isinstance(event, SampleLine):
            self._bar.console.print(f"{count(event.step):>7} │ {event.first_line}", style="dim")
        elif isinstance(event, Iteration):
            left = event.seconds * (1 / event.share - 1) if event.share else 0.0
            line = self._fitting(event)
            self._bar.update(self._task, completed=event.share, line=line, left=clock(left))
