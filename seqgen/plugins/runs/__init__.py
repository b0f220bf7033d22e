"""Compare how models were trained: settings that differ, figures with intervals, and curves.

Pages: docs/training.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "models compare-runs": Command("command:compare_runs", "Models"),
    },
)
