"""Texts of a given form: regular expressions, grammars, JSON schemas."""

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
