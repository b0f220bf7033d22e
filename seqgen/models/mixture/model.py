"""Mixtures of torch modules."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from seqgen.models.base import LanguageModel
from seqgen.models.mixture.equations import Mixed


class Mixture(Mixed, LanguageModel):
    """Mixture of torch modules; see `Mixed.mix` for its arguments."""

    forward = Mixed.interpolated

    def __init__(
        self,
        components: Sequence[LanguageModel],
        weights: Sequence[float],
        by_order: Sequence[Sequence[float]] | None = None,
        gate: Sequence[Sequence[float]] | None = None,
    ) -> None:
        super().__init__()
        self.components = nn.ModuleList(components)
        self.mix(components, weights, by_order, gate)
