"""Word vectors over arrays."""

from __future__ import annotations

import functools
import operator

import numpy as np

from seqgen.engines.weights import Shapes, Weights
from seqgen.models.arrays import ArrayNetwork
from seqgen.plugins.vectors.models.settings import WordConfig


class WordArrays(ArrayNetwork):
    """Array version of `WordNetwork`: only the vectors."""

    config: WordConfig

    def __init__(self, config: WordConfig, weights: Weights) -> None:
        self.config, self.weights = config, weights
        self.dtype = weights["embedding.weight"].dtype

    @classmethod
    def shapes(cls, config: WordConfig) -> Shapes:
        shapes = {f"{name}.weight": (config.vocab_size, n) for name, n in config.tables.items()}
        return {**shapes, "counts": (config.vocab_size,)}

    def token_vectors(self) -> np.ndarray:
        tables = (self.weights[f"{name}.weight"] for name in self.config.vectors)
        return functools.reduce(operator.add, tables)
