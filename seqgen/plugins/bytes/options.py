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

INSIDE_CHARACTER = "a prompt that ends inside a character"

# Options that decide how a text begins, or which tokens it has.
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
        require(":bytes=all," not in (name or ""), f"{name} has its own number: leave out --covers")
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
        unchanged = self.heal is False or not prompt.text or not options.max_tokens
        if unchanged and not (prompt.cut or self.heal):
            return prompt
        from seqgen.plugins.bytes.heal import ends_at_boundary, heal
        from seqgen.plugins.bytes.view import has_view, require_view

        if self.heal or prompt.cut:
            require_view(loaded, INSIDE_CHARACTER if prompt.cut else "--heal")
        if (unchanged and not prompt.cut) or not has_view(loaded):
            return prompt
        off = [*SAYS_HOW_TEXTS_BEGIN, LEAVES_NO_FIRST_TOKEN]
        off = [flag for flag in off if flag in options.given]
        at_boundary = ends_at_boundary(loaded.tokenizer, prompt)
        if prompt.cut:
            require(not off, f"{' and '.join(off)} cannot follow {INSIDE_CHARACTER}")
        elif at_boundary or (off and not self.heal):
            return prompt
        return heal(loaded, prompt, keep_tokens=at_boundary or self.heal is False)
