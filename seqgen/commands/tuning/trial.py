"""A trial: while it runs, and what came of it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import optuna


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Keep Optuna's warnings about features that may change from the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Trial:
    """A trial that is running in this process.

    Attributes:
        index: its number; 0 is the recipe.
        values: of the settings that are searched.
        folder: for its files, which is deleted when it ends.
        optuna: what Optuna knows it by.
    """

    index: int
    values: dict[str, Any]
    folder: Path
    optuna: optuna.trial.Trial

    def should_stop(self, loss: float, tenth: int) -> bool:
        """Report a validation; return whether others were better at this tenth of a trial."""
        with without_warnings():
            self.optuna.report(loss, tenth)
            return self.optuna.should_prune()


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """The keys of a record of a trial in `seqgen tune --json`, in order.

    `stopped` is why its training ended; or pruned, diverged or failed, and then `error` says why.
    """

    trial: int
    settings: dict[str, Any]
    val_loss: float | None
    stopped: str
    seconds: float
    steps: int | None = None
    parameters: int | None = None
    error: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it was trained to its end."""
        return self.stopped not in ("pruned", "diverged", "failed")
