"""Dynamic evaluation: a model keeps training on the text that it is scored on.

Pages: docs/evaluate.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(options={"scoring": "options:Dynamic"})
