"""HTML pages about trained models."""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "report": Command("command:report", "Measure"),
    },
)
