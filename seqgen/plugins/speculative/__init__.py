"""Speculative decoding: draft tokens from the text itself or a smaller model.

Pages: docs/generate.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(options={"sample": "options:SpeculativeOptions"})
