"""Statistics of a text, and warnings about what would hurt training.

Pages: docs/text.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "data": Command("command:data", "Text"),
    },
    methods={"output": {"token-statistics": "vocabulary:put_statistics"}},
)
