"""A run in Weights & Biases; offline unless the environment variable WANDB_MODE says otherwise."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from seqgen.plugins.trackers.tracker import Tracker


class WandbRun(Tracker):
    """Logs to the project `WANDB_PROJECT`, or seqgen; a resumed run has the same id."""

    def begin(self, settings: Mapping[str, Any]) -> None:
        import wandb

        # Settings can be revised during a run; its creation time cannot.
        about = f"{self.stored.name} {self.stored.record['created']}"
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "seqgen"),
            name=self.stored.name,
            id=hashlib.sha256(about.encode()).hexdigest()[:12],
            resume="allow",
            config=dict(settings),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=wandb.Settings(silent=True, console="off"),
        )

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._run.log(dict(figures), step=step)

    def log_sample(self, text: str, step: int) -> None:
        self._run.log({"sample": text}, step=step)

    def finish(self, result: Mapping[str, Any]) -> None:
        self._run.summary.update({f"result/{name}": value for name, value in result.items()})
        self._run.finish()

    def abandon(self) -> None:
        import wandb

        try:
            self._run.finish()
        except Exception:  # its service is gone; at the exit of Python, it would be missed again
            wandb.teardown()
