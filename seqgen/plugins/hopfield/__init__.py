"""Associative memories (Hopfield networks) that restore corrupted lines.

Pages: docs/architectures.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "restore": Command("command:restore", "Write"),
    },
    tasks=("task:ASSOCIATIVE_MEMORY",),
)
