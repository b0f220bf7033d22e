"""Feed-forward language model over a window of tokens, over NumPy arrays."""

from __future__ import annotations

from seqgen.models.arrays import NeuralArrays
from seqgen.plugins.window.equations import WindowNetwork


class WindowArrays(WindowNetwork, NeuralArrays):
    """Feed-forward window model over NumPy arrays; see `WindowNetwork`."""
