"""Stochastic beam search, and exhaustive search for tiny vocabularies.

Pages: docs/generate.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(
    methods={
        "search": {
            "stochastic-beams": "stochastic_beam:StochasticGroup",
            "exhaustive-search": "exhaustive:exhaustive",
        },
    },
)
