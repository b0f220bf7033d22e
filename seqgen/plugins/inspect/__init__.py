"""A look into models: predictions, units and attention; gradients, weights and warnings.

Pages: docs/inspect.md, docs/diagnose.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "diagnose": Command("diagnose.command:diagnose", "Measure"),
        "inspect": Command("command:inspect", "Measure"),
    },
    options={"train": "diagnose.options:DiagnoseOptions"},
    listeners=("diagnose.watch:listen",),
    sections=("sections:HELD_OUT_TEXT", "sections:ATTENTION_AND_GATES"),
)
