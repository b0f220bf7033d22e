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
        """Seconds left, at least 0; rank 0's on all ranks."""
        return ranks.broadcast(max(0.0, self.at - time.monotonic()))

    @property
    def has_passed(self) -> bool:
        """Whether no time is left."""
        return not self.left
