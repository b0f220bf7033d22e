"""Options for prompts that end inside a token, and for the number of covers that are kept."""

from __future__ import annotations

import re
from typing import Any

from seqgen.settings import require
from seqgen.settings.filters import FilterOptions, ViewOptions
from seqgen.settings.options import Panel
from seqgen.settings.setting import setting

# It allows no copy, and most tokens that begin as the prompt ends are one.
LEAVES_NO_FIRST_TOKEN = "--max-copy"

# What says itself how a text begins, or which tokens it has.
SAYS_HOW_TEXTS_BEGIN = (
    "--force",
    "--suggest",
    "--pattern",
    "--grammar",
    "--json-schema",
    "--include",
    "--suffix",
)


# `:bytes=all` in a name, at its end, or before the weight of a part of a mixture or the next part.
ALL_COVERS = re.compile(r":bytes=all(?=[:+]|$)")


class CoverLimit(ViewOptions, panel=Panel.MODEL):
    """Limit on the number of covers that a model seen byte by byte keeps."""

    covers: int | None = setting(
        "Keep at most this many covers of a text with -m NAME:bytes=all; those of the tokenizer's "
        "own split always stay.",
        low=1,
        without="64",
    )

    def seen(self, name: str | None) -> str | None:
        if self.covers is None:
            return name
        limited, found = ALL_COVERS.subn(rf"\g<0>,{self.covers}", name or "")
        beside = "beside other models, write NAME:bytes=all,N"
        said = f"--covers goes with NAME:bytes=all, and {name or 'the latest model'} is none"
        require(bool(found), f"{said}; {beside}")
        return limited


class Healing(FilterOptions, panel=Panel.TEXT):
    """Whether the first token may begin within the prompt."""

    heal: bool | None = setting(
        "Let the first token begin within the prompt: for prompts that end inside a word or with "
        "a space.",
        names=("--heal/--no-heal",),
        without="where the prompt may end inside a token",
        conflicts=SAYS_HOW_TEXTS_BEGIN,
    )

    def prompt(self, generator: Any, prompt: Any) -> Any:
        loaded, options = generator.loaded, generator.options
        if self.heal is False or not prompt.text or not options.max_tokens:
            return prompt
        from seqgen.plugins.bytes.heal import ends_at_boundary, heal
        from seqgen.plugins.bytes.view import has_view, require_view

        if self.heal:
            require_view(loaded, "--heal")
        elif not has_view(loaded):
            return prompt
        if ends_at_boundary(loaded.tokenizer, prompt):
            return prompt
        off = {*SAYS_HOW_TEXTS_BEGIN, LEAVES_NO_FIRST_TOKEN}
        if not self.heal and not off.isdisjoint(options.given):
            return prompt
        return heal(loaded, prompt)
