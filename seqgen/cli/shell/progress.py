"""Training progress: a live bar or plain log lines, and a summary at the end."""

from __future__ import annotations

import contextlib
import math
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen import hooks, registry, store
from seqgen.cli.shell.output import Output, can_redraw, console, is_terminal, say, take_announced
from seqgen.cli.shell.tables import (
    clock,
    count,
    duration,
    figure,
    named_figures,
    percentage,
    weight,
)
from seqgen.training.events import (
    SAMPLE_WIDTH,
    EncodingProgress,
    Event,
    Iteration,
    ListenerEvent,
    Notice,
    Report,
    SampleLine,
    Started,
    Validated,
)
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.training.session import TrainingResult


# Without a bar, seconds between two lines of progress: a log stays short.
LINE_SECONDS = 10.0


@contextlib.contextmanager
def display(out: Output, doing: str = "") -> Iterator[Report]:
    """Open a progress display on standard error; yields a callback for training events.

    Args:
        out: how results are printed.
        doing: what is done until the first event, for the line of a terminal.
    """
    if out.quiet:
        yield lambda event: None
    elif can_redraw(sys.stderr):
        with LiveDisplay(out.verbose, doing) as live:
            yield _after_announced(live.take)
    else:
        yield _after_announced(LineDisplay(out.verbose).take)


def _after_announced(show: Report) -> Report:
    """Return a callback that shows what is announced before the next event."""

    def take(event: Event) -> None:
        for message in take_announced():
            show(Notice(text=message))
        show(event)

    return take


def describe(event: Started) -> str:
    """Summarise a run that starts in one line: architecture, size and budget."""
    config = event.training
    budget = plural(getattr(config, config.budget), config.budget.removesuffix("s"))
    return (
        f"{event.name}: {event.architecture}, {plural(event.parameters, 'parameter')}; "
        f"{plural(event.train_tokens, event.unit)} to train on, {count(event.val_tokens)} held "
        f"out; {budget}, seed {config.seed}"
    )


def describe_further(event: Started) -> str:
    """Summarise the training settings of a run in one line."""
    vocabulary = f"{plural(event.vocab_size, 'token')} in the vocabulary"
    if event.source_vocab_size is not None:
        vocabulary = (
            f"{plural(event.source_vocab_size, 'token')} in the vocabulary of sources, "
            f"{count(event.vocab_size)} in that of targets"
        )
    return f"{vocabulary}; {event.training.precision} on {event.device}"


class Figures:
    """Formatter of training figures for both progress displays."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.val_loss: float | None = None
        self.accuracy: float | None = None

    def validation(self, event: Validated) -> str:
        """Format a validation result in one line, and remember it."""
        self.val_loss = event.val_loss
        self.accuracy = event.figures.get("accuracy")
        # Most validations are the best so far, so only the others are marked.
        worse = "" if event.best else "  (no better)"
        figures = "  ".join(self._validated())
        return f"step {count(event.step)}  {figures}{worse}"

    def _validated(self) -> list[str]:
        """Format the last validation loss with bits per character, or label accuracy.

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
        """Format loss, validation loss, bits per character and speed, most important first."""
        parts = [f"loss {figure(event.train_loss)}", *self._validated()]
        unit = self.started.unit if self.started else "token"
        return [*parts, f"{count(event.tokens_per_second)} {unit}s/s"]


class _Display:
    """Base class of progress displays, which receive training events."""

    def __init__(self, verbose: bool = False) -> None:
        self._figures, self._verbose = Figures(), verbose

    def take(self, event: Event) -> None:
        """Show a training event."""
        if isinstance(event, Started):
            self._figures.started = event
            self._say(describe(event))
            if self._verbose:
                self._say(describe_further(event))
        elif isinstance(event, Notice):
            if self._verbose or not event.detail:
                self._say(event.text.replace("\n", "\\n"))  # a file name may contain newlines
        elif isinstance(event, Validated):
            self._say(self._figures.validation(event))
        self._show(event)

    def _say(self, line: str) -> None:
        """Print a line."""
        say(line)

    def _show(self, event: Event) -> None:
        """Show a sample or the progress of the run."""


class LineDisplay(_Display):
    """Progress as plain log lines, every few seconds and for every other event."""

    _last_printed = -math.inf

    def _show(self, event: Event) -> None:
        if isinstance(event, SampleLine):
            say(f"  | {event.first_line}")
        elif isinstance(event, Iteration) and time.monotonic() - self._last_printed > LINE_SECONDS:
            self._last_printed = time.monotonic()
            figures = self._figures.parts(event)
            say("  ".join([f"step {count(event.step)}", percentage(event.share, 0), *figures]))


# Columns that the live line needs besides its figures: for the bar, and for the share of the budget
# that is spent with the time that is left.
LEAST_BAR, SHARE_AND_ETA = 12, 22


class LiveDisplay(_Display):
    """Progress bar with loss, speed and remaining time; other events scroll above it.

    On a narrow terminal the last figures are left out. The bar, the loss and the time left are
    always shown.
    """

    def __init__(self, verbose: bool = False, doing: str = "") -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        super().__init__(verbose)
        self._doing = doing
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
        self._task = self._bar.add_task("", total=1.0, line=self._doing, left="-")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _fitting(self, event: Iteration) -> str:
        """Select as many figures as fit on the terminal's line, loss first."""
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


# The summary ends with this many lines of a sample.
SAMPLE_LINES = 6
# The rate falls to the end of a run, and with it the loss; if the best validation came before this
# share of the steps, the model has begun to learn the text by heart. That takes so many passes over
# the text at least; a run that is best before has other troubles.
USED_UP, LEAST_PASSES = 0.75, 2.0
# Columns before a figure of the summary.
INDENT = 17


def how_to_resume(result: TrainingResult) -> str:
    """Tell how to resume a run that stopped before its budget was spent."""
    done = plural(result.steps, "step")
    return f"stopped after {done}; resume with: seqgen train --resume {result.name}"


def summarise(result: TrainingResult, events: Iterable[ListenerEvent] = ()) -> None:
    """Print the result of a run on standard error: quality of the model, and next commands.

    Args:
        result: of the run.
        events: the last ones of listeners, whose lines follow.
    """
    _summarise(result)
    for event in events:
        for line in event.summary():
            say(line)


def _summarise(result: TrainingResult) -> None:
    if result.stopped == "stop-after":
        say(how_to_resume(result))
        return
    counted = result.steps is None
    work = f"{plural(result.tokens, 'token')} counted" if counted else plural(result.steps, "step")
    parts = [f"{result.name}: {work} in {duration(result.seconds)}"]
    if result.val_loss is not None:
        parts.append(f"validation loss {figure(result.val_loss)} nats/{_unit(result)}")
    if result.val_accuracy is not None:
        parts.append(f"accuracy {percentage(result.val_accuracy)}")
    if result.val_bits_per_char is not None:
        parts.append(f"{figure(result.val_bits_per_char)} bits/char")
        if result.val_oov_bits_per_byte:
            share = result.val_oov_bits_per_byte / result.val_bits_per_byte
            parts[-1] += f" ({percentage(share, 0)} of it for unknown tokens)"
    say(", ".join(parts))
    if result.steps is not None:
        _table(result)
    if result.members:
        _put_members(result.name, result.members)
    if result.mixture:
        _put_mixture(result.name, result.mixture)
    say(f"try: seqgen {_writes(result)} -m {result.name}")


def _put_members(name: str, members: Mapping[str, Any]) -> None:
    """Print the losses of networks trained side by side, separately and as an ensemble."""
    each = zip(members["losses"], members["weights"], strict=True)
    rows = {f"{name}-{i}": (loss, weight(value)) for i, (loss, value) in enumerate(each, 1)}
    together = "mixed by a gate" if members.get("gate") else "together"
    cost = f"{together}; each token that it writes takes {len(rows)} steps"
    _put_parts({**rows, name: (members["loss"], cost)}, members["tokens"])


def _put_mixture(name: str, mixture: Mapping[str, Any]) -> None:
    """Print the losses of a network, an n-gram model and their mixture."""
    parts = "network alone", f"{mixture['order']}-gram alone"
    weights = "weights " + " and ".join(weight(value) for value in mixture["weights"])
    if mixture["by_order"]:
        weights += " on average, and others by order"
    if mixture.get("gate"):
        weights = "mixed by a gate"
    rows = {
        parts[0]: (mixture["network_loss"], ""),
        parts[1]: (mixture["ngram_loss"], ""),
        name: (mixture["mixture_loss"], weights),
    }
    _put_parts(rows, mixture["tokens"])


def _put_parts(rows: Mapping[str, tuple[float, str]], tokens: int) -> None:
    """Print the loss of each part of a mixture with a remark, on a number of scored tokens."""
    # Of a large held-out part, or in a short time, neither half is used as a whole.
    say("  weights fitted on the first half of the held-out part, or on some of it;")
    say(f"  nats/token on {plural(tokens, 'token')} of the other half:")
    width = max(map(len, rows))
    for name, (loss, about) in rows.items():
        say(f"    {name:<{width}}  {figure(loss)}  {about}".rstrip())


def _writes(result: TrainingResult) -> str:
    """Name the command that generates text with the new model."""
    stored = store.StoredModel(Path(result.path))
    if stored.config["model"].get("source_features") is not None:
        return "beam-search --source-vectors FILE"
    return next(
        filter(None, (kind.try_it(stored) for kind in hooks.load_all("datasets"))),
        stored.task.try_it,
    )


def _unit(result: TrainingResult) -> str:
    """Name the unit that losses are averaged over: token or label."""
    return registry.unit_of(result.architecture)


def _table(result: TrainingResult) -> None:
    """Print a table of how a run ended, and a sample of the model's text."""
    early = {
        "patience": "early: validation stopped improving",
        "converged": "early: the text's likelihood stopped rising",
    }
    stopped = early.get(result.stopped, "the budget is spent")
    rows = {
        "parameters": count(result.parameters),
        f"{_unit(result)}s": (
            f"{count(result.tokens)}, {count(result.tokens_per_second)} per second"
        ),
        "training loss": f"{figure(result.train_loss)} nats/{_unit(result)}",
        "stopped": stopped,
    }
    if result.epoch_loss is not None:
        spread = f"standard deviation of its steps {figure(result.epoch_loss_std)}"
        rows["last epoch"] = f"{figure(result.epoch_loss)} nats/{_unit(result)}, {spread}"
    if result.val_loss is not None:
        if result.best_step is not None:
            rows["best"] = f"step {count(result.best_step)}"
            if _is_used_up(result):
                rows["best"] += "; this text is used up: longer training would not help"
        if result.val_perplexities is not None:
            rows["perplexity"] = named_figures(result.val_perplexities)
        rows["validation"] = f"{result.protocol}; {duration(result.validation_seconds)}"
    if result.layer_weights is not None:
        rows["features"] = named_figures(result.layer_weights)
    room = max(40, console(sys.stderr).width - INDENT) if is_terminal(sys.stderr) else sys.maxsize
    for key, value in rows.items():
        first, *rest = textwrap.wrap(value, room)
        say(f"  {key:<14} {first}")
        for line in rest:
            say(f"{'':{INDENT}}{line}")
    for line in (result.sample or "").strip("\n").splitlines()[:SAMPLE_LINES]:
        say(f"  | {line[:SAMPLE_WIDTH]}")


def _is_used_up(result: TrainingResult) -> bool:
    """Check whether a longer run on the same text would not improve the model."""
    if (result.epochs or 0.0) < LEAST_PASSES:
        return False
    return result.stopped == "patience" or result.best_step < USED_UP * result.steps
