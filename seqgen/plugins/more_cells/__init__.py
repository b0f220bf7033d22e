"""More recurrent cells than Elman's network, the GRU and the LSTM: a file for each equation."""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin()
