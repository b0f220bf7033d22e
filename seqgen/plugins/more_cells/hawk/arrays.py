"""Hawk over NumPy arrays."""

from __future__ import annotations

from seqgen.models.arrays import NeuralArrays
from seqgen.plugins.more_cells.hawk.equations import HawkStack


class HawkArrays(HawkStack, NeuralArrays):
    """Hawk over NumPy arrays; see `Hawk`."""
