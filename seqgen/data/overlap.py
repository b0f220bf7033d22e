"""Held-out lines that are also in the training part, where a model only has to memorise."""

from __future__ import annotations

from dataclasses import dataclass

from seqgen.data.split import Split
from seqgen.data.text import lines


@dataclass(frozen=True)
class Overlap:
    """The overlap of the held-out part with the training part.

    Attributes:
        shared: held-out lines that are lines of the training part; blank ones do not count.
        lines: held-out lines that are not blank.
    """

    shared: int
    lines: int

    @property
    def warning(self) -> str | None:
        """A warning in one line, or None."""
        if not self.shared:
            return None
        return (
            f"{self.shared:,} of {self.lines:,} held-out lines ({self.shared / self.lines:.1%}) "
            "are in the training part too: the validation loss flatters the model"
        )


def overlap(split: Split) -> Overlap:
    """Count the held-out lines that the training part has too; ends of lines do not count.

    Args:
        split: both parts; its held-out lines are held in memory.
    """
    held = [line.rstrip("\r\n") for line in lines(split.val()) if line.strip()]
    distinct = set(held)
    seen = {text for line in lines(split.train()) if (text := line.rstrip("\r\n")) in distinct}
    return Overlap(sum(line in seen for line in held), len(held))
