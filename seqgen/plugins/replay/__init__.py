"""Replay of recorded commands, to check that results are reproducible.

Pages: docs/compare.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "replay": Command("command:replay", "Measure"),
    },
)
