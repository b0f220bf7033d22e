"""Page sections that plugins add: their results and their places on the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from seqgen import hooks
from seqgen.cli.shell.page import ReportSection
from seqgen.errors import SeqgenError
from seqgen.scoring.passages import Passages
from seqgen.store.loaded import LoadedModel


@dataclass(frozen=True)
class Finding:
    """Result of a plugin's section for one model.

    Attributes:
        section: the plugin's.
        found: what it has found; None where it does not apply, or cannot be known.
        unknown: why it cannot be known; "" where it can.
    """

    section: ReportSection
    found: Any
    unknown: str = ""

    def body(self) -> str:
        """Render the result as HTML."""
        if self.unknown:
            return f"<p>Not known: {escape(self.unknown)}.</p>"
        if self.found is None:
            return f"<p>{escape(self.section.absence)}</p>"
        return self.section.body(self.found)

    def commands(self, model: str, file: str) -> list[str]:
        """List the command lines that reproduce it; see `ReportSection.commands`."""
        return [] if self.found is None else self.section.commands(self.found, model, file)

    @property
    def record(self) -> Any:
        """Figures for the page's records; None without any."""
        return None if self.found is None else self.section.record(self.found)


def findings(loaded: LoadedModel, passages: Passages) -> dict[str, Finding]:
    """Run the sections of all plugins on a model and a text.

    Returns:
        What each has found, by title.
    """
    return {
        section.title: _look(section, loaded, passages) for section in hooks.load_all("sections")
    }


def _look(section: ReportSection, loaded: LoadedModel, passages: Passages) -> Finding:
    try:
        return Finding(section, section.look(loaded, passages))
    except SeqgenError as error:
        return Finding(section, None, str(error))


def with_added(titles: Sequence[str]) -> list[str]:
    """Insert the titles of plugins' sections after those that they name."""
    added: list[ReportSection] = hooks.load_all("sections")

    def followed(title: str) -> Iterator[str]:
        yield title
        for section in added:
            if section.after == title:
                yield from followed(section.title)

    ordered = [each for title in titles for each in followed(title)]
    return [*ordered, *(one.title for one in added if one.title not in ordered)]
