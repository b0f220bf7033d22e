"""Search for text copied from the training text, and a filter against copying.

Pages: docs/evaluate.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "novelty": Command("command:novelty", "Measure", work="reads"),
    },
    options={"eval": "options:NoveltyMeasure", "writing": "filter_options:CopyLimit"},
    sections=("section:SECTION",),
)
