"""Reading texts with labels: from files with tabs, or lines that all have the same labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seqgen.data.labels import Labels, at_line, names_of
from seqgen.data.pairs import Pairs, Readable
from seqgen.data.text import Survey, lines, survey
from seqgen.errors import SeqgenError


@dataclass(frozen=True)
class LabelledLines(Pairs):
    """One text per line: labels, tab, text. Only the first tab separates; others are text.

    Args:
        text: the file or files.
        name: what an error calls it.
        labels: those that a line may have; any if None.
    """

    text: Readable
    name: str
    labels: Labels | None = None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        check = names_of if self.labels is None else self.labels.ids
        known: set[str] = set()
        for number, line in enumerate(lines(self.text.chunks(), self.name), start=1):
            field, tab, text = line.removesuffix("\n").partition("\t")
            if not tab:
                raise SeqgenError(
                    f"{self.name}, line {number} has no tab; each line is label<TAB>text"
                )
            if field not in known:
                at_line(number, lambda field=field: check(field), self.name)
                known.add(field)
            yield field, text


@dataclass(frozen=True)
class LinesOfLabel(Pairs):
    """The lines of a plain text, all with the same labels.

    Args:
        text: the file or files.
        field: the labels.
    """

    text: Readable
    field: str

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((self.field, line.removesuffix("\n")) for line in lines(self.text.chunks()))

    def survey(self) -> Survey:
        """Survey the lines alone."""
        return survey(self.targets())
