"""More recurrent networks than Elman's, the GRU and the LSTM: a file for each cell, and Hawk.

Pages: docs/architectures.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin()
