"""Rich console that escapes control characters in printed text but keeps its own styling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from seqgen.wording import escape_controls


class Screen(Console):
    """Rich console that escapes control characters; see `escape_controls`."""

    def render_str(self, text: str, **styling: Any) -> Text:
        """Escape a string before layout, so that table columns stay aligned."""
        return super().render_str(escape_controls(text), **styling)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Escape control characters in renderables other than strings."""
        for segment in super().render(renderable, options):
            yield (
                segment if segment.control else segment._replace(text=escape_controls(segment.text))
            )
