"""List and clear the cache: encoded texts, texts from standard input, measured speeds.

Pages: docs/text.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "models cache": Command("command:cache", "Models"),
    },
)
