"""Minimal pairs: how often a model gives the better of two texts the higher probability.

Pages: docs/evaluate.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(options={"eval": "options:MinimalPairs"})
