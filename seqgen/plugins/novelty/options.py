"""Option `seqgen eval --novelty`, and its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seqgen.cli.shell.tables import count, percentage
from seqgen.settings.options import Panel
from seqgen.settings.scoring import TextMeasure
from seqgen.settings.setting import setting

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel


class NoveltyMeasure(TextMeasure, panel=Panel.SCORES):
    """Measure of copying in generated texts: the longest passage, and shares of n-grams."""

    novelty: bool = setting(
        "Measure how much the generated texts have in common with the training text, as `seqgen "
        "novelty` does.",
        common=True,
    )
    rows = (
        ("longest copy, characters", lambda r: count(r["longest"])),
        *(
            (f"{n} characters copied", lambda r, n=n: percentage(r["share"]["characters"][n]))
            for n in ("10", "20", "50")
        ),
    )

    def measure(
        self, loaded: LoadedModel, real: Sequence[str], written: Sequence[str]
    ) -> dict[str, Any]:
        from seqgen.plugins.novelty.novelty import known_to, novelty

        known = known_to(loaded)
        return {
            name: novelty(known, texts).figures()
            for name, texts in (("model", written), ("text", real))
        }
