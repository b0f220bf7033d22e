"""The network over the last few tokens, over arrays."""

from __future__ import annotations

from seqgen.models.arrays import NeuralArrays
from seqgen.models.window.equations import OverWindow


class WindowArrays(OverWindow, NeuralArrays):
    """`OverWindow` over arrays."""
