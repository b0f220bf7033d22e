"""Deadlines: moments by which parts of a timed run should be done."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from seqgen import ranks


@dataclass(frozen=True)
class Deadline:
    """Moment by which some work should be done.

    Attributes:
        at: the moment, in seconds of `time.monotonic`; infinity for no deadline.
    """

    at: float = math.inf

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Make a deadline so many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds left for this process, at least 0."""
        return max(0.0, self.at - time.monotonic())

    @property
    def has_passed(self) -> bool:
        """Whether no time is left for this process."""
        return not self.left

    @property
    def is_over(self) -> bool:
        """Whether no time is left for rank 0; all ranks must ask."""
        return ranks.broadcast(self.has_passed)
