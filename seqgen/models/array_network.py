"""What every model over NumPy arrays has, whether or not it is a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from seqgen.engines.parts import shapes_of
from seqgen.engines.weights import Shapes, Weights, parameter_count
from seqgen.settings import ModelConfig


class Configured:
    """What a configuration has built, in either engine.

    Attributes:
        config: what built it.
    """

    config: ModelConfig

    @property
    def vocab_size(self) -> int:
        """The number of tokens V."""
        return self.config.vocab_size

    @property
    def parts(self) -> Sequence[Configured]:
        """The models that it consists of, without their caches: of most, itself."""
        return [self]


class ArrayNetwork(Configured):
    """A model over NumPy arrays, whose weights do not change.

    It answers as the torch module of the same configuration and weights does, but for rounding.

    Attributes:
        dtype: the type of its numbers.
        vectors: (V, D), those of the tokens; None where they have none.
        window: how many tokens it reads at most; None for any number.
        both_ways: see `Model`.
    """

    both_ways: ClassVar[bool] = False
    dtype: np.dtype
    vectors: np.ndarray | None = None
    window: int | None = None

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        raise NotImplementedError

    @staticmethod
    def suits(config: Any) -> bool:
        """Return whether there is an array model of these settings."""
        return True

    @classmethod
    def shapes(cls, config: Any) -> Shapes:
        """Return the shape of every weight, by name; of shared ones, under each of their names."""
        return shapes_of(cls, config)

    @classmethod
    def shared(cls, config: Any) -> list[list[str]]:
        """Return the names of each weight that several parts share."""
        return config.shared_weights()

    @property
    def precision(self) -> str:
        """The type that it computes in."""
        return self.dtype.name

    def parameter_count(self) -> int:
        """Return the number of trained numbers; shared ones count once."""
        return parameter_count(self.shapes(self.config), self.shared(self.config))

    def ids(self, ids: np.ndarray) -> np.ndarray:
        """Return ids, of int64 and any shape, as a call takes them."""
        return ids

    def token_vectors(self) -> np.ndarray | None:
        """Return a vector for each token, (V, D); None where tokens have none."""
        return self.vectors
