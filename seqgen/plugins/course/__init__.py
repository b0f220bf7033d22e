"""Companion to five lectures, step by step, with commands to run in each step."""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "course": Command("command:course", "Help"),
    },
)
