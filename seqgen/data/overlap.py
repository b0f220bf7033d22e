"""Held-out lines that stand in the training part too: on those a model only has to remember."""

from __future__ import annotations

from dataclasses import dataclass

from seqgen.data.split import Split
from seqgen.data.text import lines


@dataclass(frozen=True)
class Overlap:
    """How much of a held-out part is in the training part too.

    Attributes:
        shared: held-out lines that are lines of the training part; blank ones do not count.
        lines: held-out lines that are not blank.
    """

    shared: int
    lines: int

    @property
    def warning(self) -> str | None:
        """What to say of it in one line, if anything."""
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
