"""A run in trackio, which keeps it on this machine: `trackio show --project seqgen`."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping
from typing import Any

from seqgen.plugins.trackers.tracker import Tracker


class TrackioRun(Tracker):
    """Logs to the project `TRACKIO_PROJECT`, or seqgen; a resumed run continues its own."""

    def begin(self, settings: Mapping[str, Any]) -> None:
        import trackio

        with _silenced():
            trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", "seqgen"),
                name=self.stored.name,
                config=dict(settings),
                resume="allow" if self.step else "never",
                embed=False,
            )

    def log(self, figures: Mapping[str, float], step: int) -> None:
        import trackio

        trackio.log(dict(figures), step=step)

    def log_sample(self, text: str, step: int) -> None:
        self.log({"sample": text}, step)

    def finish(self, result: Mapping[str, Any]) -> None:
        import trackio

        with _silenced():
            if result:
                figures = {k: v for k, v in result.items() if isinstance(v, int | float | str)}
                trackio.log({f"result/{name}": figure for name, figure in figures.items()})
            trackio.finish()


def _silenced() -> contextlib.AbstractContextManager[Any]:
    """Keep what trackio prints off standard output, which has the results of the command."""
    return contextlib.redirect_stdout(io.StringIO())
