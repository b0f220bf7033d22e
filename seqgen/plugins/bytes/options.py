"""Option of `sample` and `beam-search` for prompts that end inside a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from seqgen.settings.filters import FilterOptions
from seqgen.settings.options import Panel
from seqgen.settings.setting import setting


class Healing(FilterOptions, panel=Panel.TEXT):
    """Whether the first token may begin within the prompt."""

    filter_flag: ClassVar[str] = "--heal"

    heal: bool = setting(
        "Let the first token begin within the prompt: for prompts that end inside a word or with "
        "a space.",
        conflicts=(
            "--force",
            "--suggest",
            "--pattern",
            "--grammar",
            "--json-schema",
            "--include",
            "--suffix",
        ),
    )

    def prompt(self, generator: Any, prompt: Any) -> Any:
        if not self.heal:
            return prompt
        from seqgen.plugins.bytes.heal import heal

        return heal(generator.loaded, prompt)

    def filters(self, generator: Any) -> Sequence[Any]:
        if not self.heal:
            return ()
        from seqgen.plugins.bytes.heal import FirstToken

        return [FirstToken(generator.dead_id)]
