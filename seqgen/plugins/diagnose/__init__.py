"""Gradients by distance, weights and units of a trained model, and warnings during training."""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "diagnose": Command("command:diagnose", "Measure"),
    },
    options={"train": "options:DiagnoseOptions"},
    listeners=("watch:listen",),
)
