"""Lossless compression with a trained model.

Pages: docs/evaluate.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "compress": Command("command:compress", "Text", work="tokens"),
        "decompress": Command("command:decompress", "Text", work="tokens"),
    },
)
