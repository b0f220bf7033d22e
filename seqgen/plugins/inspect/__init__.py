"""Predictions, units and attention of a model on a text, token by token."""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "inspect": Command("command:inspect", "Measure"),
    },
    sections=("sections:HELD_OUT_TEXT", "sections:ATTENTION_AND_GATES"),
)
