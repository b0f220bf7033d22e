"""Hawk over arrays."""

from __future__ import annotations

from seqgen.models.arrays import NeuralArrays
from seqgen.models.hawk.equations import HawkStack


class HawkArrays(HawkStack, NeuralArrays):
    """The model of `Hawk`, see there."""
