"""Companion to five lectures, step by step, with commands to run in each step.

Pages: docs/companion/index.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "course": Command("command:course", "Help"),
    },
)
