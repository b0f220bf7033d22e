"""More recurrent cells: those that searches found (MUT1 to MUT3, NAS), and the Grid LSTM."""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin()
