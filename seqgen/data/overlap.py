"""Held-out lines and pairs that a model is also trained on, where it only has to memorise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from seqgen.data.pairs import Pairs
from seqgen.data.sources import content_of
from seqgen.data.split import Split

COMPARED = 1 << 20


@dataclass(frozen=True)
class Overlap:
    """The overlap of the held-out part with the training part.

    Attributes:
        shared: held-out lines that are lines of the training part; blank ones do not count. Of
            pairs: held-out pairs both of whose sides are those of a training pair.
        lines: held-out lines that are not blank; held-out pairs.
        what: which of the two.
    """

    shared: int
    lines: int
    what: str = "lines"

    @property
    def warning(self) -> str | None:
        """A warning in one line, or None."""
        if not self.shared:
            return None
        return (
            f"{self.shared:,} of {self.lines:,} held-out {self.what} "
            f"({self.shared / self.lines:.1%}) "
            "are in the training part too: the validation loss flatters the model"
        )


def overlap_of_lines(split: Split) -> Overlap:
    """Count the held-out lines that the training part has too; ends of lines do not count.

    Lines of a stream may be of any length; two are the same if their first `COMPARED` characters
    are.

    Args:
        split: both parts; its held-out lines are held in memory.
    """
    held = [line for line in _beginnings(split.val()) if line.strip()]
    return Overlap(_shared(held, _beginnings(split.train())), len(held))


def _beginnings(chunks: Iterable[str]) -> Iterator[str]:
    """Yield the first characters of each line, without its end."""
    held = ""
    for chunk in chunks:
        first, *others = chunk.split("\n")
        held += first[: COMPARED - len(held)]
        for line in others:
            yield held.rstrip("\r")
            held = line[:COMPARED]
    yield held.rstrip("\r")


def overlap_of_pairs(train: Pairs, held_out: Pairs) -> Overlap:
    """Count the held-out pairs that the training part has too, source and target.

    Args:
        train: to learn from.
        held_out: held in memory; of vectors, their hashes.
    """
    held = [(content_of(source), target) for source, target in held_out]
    seen = ((content_of(source), target) for source, target in train)
    return Overlap(_shared(held, seen), len(held), "pairs")


def _shared(held: list, train: Iterable) -> int:
    """Count the items of `held` that are in `train`."""
    distinct = set(held)
    seen = {item for item in train if item in distinct}
    return sum(item in seen for item in held)
