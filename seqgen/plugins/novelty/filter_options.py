"""Option of `sample` and `beam-search` that limits copying."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from seqgen.settings.filters import FilterOptions
from seqgen.settings.options import Panel
from seqgen.settings.setting import setting


class CopyLimit(FilterOptions, panel=Panel.FILTERS):
    """Limit on copying from the training text."""

    filter_flag: ClassVar[str] = "--max-copy"

    max_copy: int | None = setting(
        "Never write N characters in a row that occur in the text the model was trained on.",
        low=1,
    )

    def filters(self, generator: Any) -> Sequence[Any]:
        if self.max_copy is None:
            return ()
        from seqgen.plugins.novelty.max_copy import max_copy

        return [max_copy(generator.loaded, self.max_copy, generator.dead_id)]
