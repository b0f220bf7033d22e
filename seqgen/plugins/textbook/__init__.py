"""Optimizers in the forms of textbooks: eps inside the root, Adagrad over a window of gradients.

Pages: docs/optimizers.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(methods={"optimizer": {"textbook-rule": "rules:textbook_rule"}})
