"""Progress of a training run in a notebook: one line, which is replaced as the run goes on."""

from __future__ import annotations

import html
import sys
import time
from typing import Any

from seqgen.cli.shell.progress import Figures, describe
from seqgen.cli.shell.tables import MISSING, clock, count, percentage
from seqgen.training.events import Event, Iteration, Started, Validated
from seqgen.training.listeners import RunFacts
from seqgen.training.run import Listener

# Seconds between two updates of the line.
SECONDS = 0.5


def listen(facts: RunFacts) -> Listener | None:
    """Show progress if this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return ProgressLine() if getattr(shell, "kernel", None) is not None else None


class ProgressLine(Listener):
    """A bar with the loss, the speed and the time left, in one output of the cell."""

    def __init__(self) -> None:
        self._figures = Figures()
        self._last: Iteration | None = None
        self._output: Any = None
        self._shown_at = 0.0

    def take(self, event: Event) -> None:
        if isinstance(event, Started):
            self._figures.started = event
            self._show(describe(event), 0.0)
        elif isinstance(event, Validated):
            self._figures.validation(event)
        elif isinstance(event, Iteration):
            self._last = event
            if time.monotonic() - self._shown_at > SECONDS:
                left = clock(event.seconds * (1 / event.share - 1)) if event.share else MISSING
                self._show(f"{self._line(event)}  ETA {left}", event.share)

    def close(self) -> None:
        if self._last is not None:
            self._show(self._line(self._last), self._last.share)

    def _line(self, event: Iteration) -> str:
        figures = self._figures.parts(event)
        name = self._figures.started.name
        step = f"step {count(event.step)}"
        return "  ".join([f"{name}: {percentage(event.share, 0)}", step, *figures])

    def _show(self, line: str, share: float) -> None:
        """Display the line, or replace the one that is displayed."""
        from IPython.display import display

        bar = f'<progress value="{share:.4f}" max="1"></progress>'
        line_as = {"text/plain": line, "text/html": f"<div>{bar} {html.escape(line)}</div>"}
        if self._output is None:
            self._output = display(line_as, raw=True, display_id=True)
        else:
            self._output.update(line_as, raw=True)
        self._shown_at = time.monotonic()
