"""Option of `sample` for the text that comes after what is written."""

from __future__ import annotations

from typing import Any

from seqgen.settings.filters import FilterOptions
from seqgen.settings.options import Panel
from seqgen.settings.setting import setting


class Suffix(FilterOptions, panel=Panel.TEXT):
    """Text that follows the one to be written."""

    suffix: str = setting(
        "Write what belongs between the prompt and this text, with a model that was trained to "
        "fill in the middle.",
        "",
        metavar="TEXT",
    )

    def prepare(self, loaded: Any) -> Any:
        if not self.suffix:
            return loaded
        from seqgen.plugins.infill.framing import between

        return between(loaded, self.suffix)
