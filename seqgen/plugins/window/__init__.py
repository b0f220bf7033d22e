"""Feed-forward language model over a window of tokens (Bengio et al. 2003).

Pages: docs/ngrams.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin()
