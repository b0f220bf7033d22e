"""Smoothing of n-grams by Witten-Bell, Jelinek-Mercer, Katz and stupid backoff.

Pages: docs/ngrams.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(
    methods={
        "smoothing": {
            "stupid-backoff": "simple:stupid_backoff",
            "witten-bell": "simple:witten_bell",
            "jelinek-mercer": "jelinek_mercer:jelinek_mercer",
            "katz": "katz:katz",
        },
    },
)
