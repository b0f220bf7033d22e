"""The continuous cache: a network recalls what followed positions that were alike.

Pages: docs/evaluate.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(
    methods={
        "cache": {
            "continuous-cache": "beside:with_cache",
            "fitted-cache": "fitting:fit_cache",
        },
    },
)
