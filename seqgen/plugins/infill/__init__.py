"""Fill in the middle: text between a prompt and a suffix, by models that were trained for it.

Pages: docs/generate.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(options={"sample": "options:Suffix"})
