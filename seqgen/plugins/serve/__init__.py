"""Trained models over HTTP: texts of many clients in one batch."""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "serve": Command("command:serve", "Write", work="reads"),
    },
)
