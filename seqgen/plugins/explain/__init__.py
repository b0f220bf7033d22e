"""Explanations of generated texts: how each token was chosen, and the tree of a beam search.

Pages: docs/generate.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(
    methods={
        "output": {
            "explained-tokens": "tokens:put_tokens",
            "search-tree": "search_tree:put_tree",
        },
    },
)
