"""A rich console that shows control characters of what it prints, and keeps its own styling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from seqgen.wording import harmless


class Screen(Console):
    """The console of a terminal; see `harmless`."""

    def render_str(self, text: str, **styling: Any) -> Text:
        """Escape a string before it is laid out, so that the columns of a table stay aligned."""
        return super().render_str(harmless(text), **styling)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Escape what comes in another form than as a string."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))
