"""A companion to five lectures, step by step, each with commands that run here."""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "course": Command("command:course", "Help"),
    },
)
