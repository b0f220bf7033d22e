"""Language models seen one byte at a time, whatever their tokenizers."""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(
    views={"bytes": "view:by_bytes"},
)
