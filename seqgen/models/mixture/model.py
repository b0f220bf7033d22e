"""Mixtures of torch modules."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from seqgen.models.base import LanguageModel
from seqgen.models.mixture.equations import Mixed
from seqgen.models.mixture.weights import MixtureWeights


class Mixture(Mixed, LanguageModel):
    """Mixture of torch modules; see `Mixed.mix` for its arguments."""

    forward = Mixed.interpolated

    def __init__(self, components: Sequence[LanguageModel], weights: MixtureWeights) -> None:
        super().__init__()
        self.components = nn.ModuleList(components)
        self.mix(components, weights)
