"""Hidden Markov models, estimated by EM.

Pages: docs/architectures.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin()
