"""Mixtures of array models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqgen.models.arrays import ArrayModel
from seqgen.models.mixture.equations import Mixed, MixtureState
from seqgen.models.mixture.weights import MixtureWeights


class MixtureArrays(Mixed, ArrayModel):
    """Mixture of array models; see `Mixed.mix` for its arguments."""

    def __init__(self, components: Sequence[ArrayModel], weights: MixtureWeights) -> None:
        self.components = components
        self.mix(components, weights)
        self.dtype = components[0].dtype

    def __call__(
        self, tokens: np.ndarray, state: MixtureState | None = None, last: int | None = None
    ) -> tuple[np.ndarray, MixtureState | None]:
        return self.interpolated(tokens, state or self.start(len(tokens)), last)
