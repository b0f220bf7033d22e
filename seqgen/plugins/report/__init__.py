"""HTML pages about trained models.

Pages: docs/report.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "report": Command("command:report", "Measure"),
    },
)
