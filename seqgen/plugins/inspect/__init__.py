"""What a model does with a text, token by token."""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "inspect": Command("command:inspect", "Measure"),
    },
)
