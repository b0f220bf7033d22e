"""Sampling filters that people know from llama.cpp: DRY, XTC and top-n-sigma.

Pages: docs/generate.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(options={"sample": "options:Samplers"})
