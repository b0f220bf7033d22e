"""Constrained texts: regular expressions, grammars and JSON schemas.

Pages: docs/constrained.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(
    options={
        "sample": "options:SampledForm",
        "beam-search": "options:SearchedForm",
        "perplexity": "language:Language",
        "fill": "language:WordPattern",
    },
)
