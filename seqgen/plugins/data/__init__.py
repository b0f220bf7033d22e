"""What is in a text, before a model is trained on it."""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "data": Command("command:data", "Text"),
    },
)
