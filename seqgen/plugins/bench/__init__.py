"""Estimates of the memory and traffic of training on several ranks.

Pages: docs/scale.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "bench": Command("command:app", "Train", work="tokens"),
    },
)
