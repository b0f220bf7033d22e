"""A run as another program keeps it: the base of TensorBoard's, trackio's and wandb's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from seqgen.training.listeners import RunFacts


class Tracker(ABC):
    """A run in another program.

    Args:
        facts: of the run in seqgen.
    """

    def __init__(self, facts: RunFacts) -> None:
        self.stored, self.step = facts.stored, facts.step

    @abstractmethod
    def begin(self, settings: Mapping[str, Any]) -> None:
        """Open the run, with all settings of the model and of training."""

    @abstractmethod
    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Log figures of a step."""

    @abstractmethod
    def log_sample(self, text: str, step: int) -> None:
        """Log a text that the model has written at a step."""

    @abstractmethod
    def finish(self, result: Mapping[str, Any]) -> None:
        """Log the result of the whole run, empty if it has failed, and close the run."""

    def abandon(self) -> None:  # noqa: B027 (most have nothing to release)
        """Release what the run holds after a call has failed; it may raise again."""
