"""Language models seen one byte at a time, whatever their tokenizers.

Pages: docs/bytes.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(
    options={"writing": "options:Healing", "view": "options:CoverLimit"},
    views={"bytes": "view:by_bytes"},
)
