"""One line of progress for training in Jupyter notebooks.

Pages: docs/python.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(listeners=("progress:listen",))
