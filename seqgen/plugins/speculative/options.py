"""Options of `sample` for speculative decoding."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from seqgen.settings.filters import FilterOptions
from seqgen.settings.options import Panel
from seqgen.settings.setting import OptionRule, setting

if TYPE_CHECKING:
    from seqgen.plugins.speculative.model import DraftCounts

# More tokens than these are never read in one piece.
MOST_AHEAD = 63
WRITES_NOTHING = OptionRule(("--suggest",), "{other} writes no text, so it takes no {flag}")


class SpeculativeOptions(FilterOptions, panel=Panel.MACHINE):
    """Source of draft tokens, which change the speed and never the text."""

    lookup: int | None = setting(
        "Speculative decoding: draft up to N tokens as they followed the last ones before, in the "
        "prompt or the text, and read them at once. Faster for texts that repeat themselves; the "
        "text stays the same.",
        low=1,
        high=MOST_AHEAD,
        conflicts=("--draft", WRITES_NOTHING),
    )
    draft: str | None = setting(
        "Speculative decoding with drafts by this smaller model; it must have the same tokenizer.",
        metavar="MODEL",
        completes="models",
        conflicts=WRITES_NOTHING,
    )

    def prepare(self, loaded: Any) -> Any:
        if self.lookup is None and self.draft is None:
            return loaded
        from seqgen.plugins.speculative.drafters import LookupDrafter, model_drafter
        from seqgen.plugins.speculative.model import make_speculative

        flag = "--draft" if self.lookup is None else "--lookup"
        drafter = LookupDrafter() if self.lookup else model_drafter(loaded, self.draft)
        return make_speculative(loaded, flag, drafter, self.lookup, self.counts)

    @cached_property
    def counts(self) -> DraftCounts:
        """Draft tokens and accepted ones, of all texts together."""
        from seqgen.plugins.speculative.model import DraftCounts

        return DraftCounts()

    def describe(self) -> str | None:
        if self.lookup is None and self.draft is None:
            return None
        return f"drafted tokens: {self.counts.accepted:,} accepted of {self.counts.drafted:,}"
