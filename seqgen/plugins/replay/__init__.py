"""Recorded results, made again."""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "replay": Command("command:replay", "Measure"),
    },
)
