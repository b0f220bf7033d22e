"""The base classes of models over NumPy arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seqgen.engines.ops import ArrayOps, Ops
from seqgen.engines.parts import fill_over_arrays, shapes_of
from seqgen.engines.weights import Shapes, Weights, parameter_count
from seqgen.models.inference import Configured, HiddenStateModel, InferenceModel

if TYPE_CHECKING:
    from seqgen.models.state import State
    from seqgen.settings import ModelConfig


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


class ArrayModel(ArrayNetwork, InferenceModel):
    """A language model over NumPy arrays."""

    def step(self, tokens: Sequence[int], state: State) -> tuple[np.ndarray, State]:
        logits, state = self(np.array(tokens)[:, None], state)
        return logits[:, 0], state


class NeuralArrays(HiddenStateModel, ArrayModel):
    """`HiddenStateModel` over arrays."""

    __call__ = HiddenStateModel.predict

    def __init__(self, config: ModelConfig, weights: Weights, ops: Ops = ArrayOps) -> None:
        self.config = config
        fill_over_arrays(self, self.pieces(config), weights, ops)
        table = weights["embedding.weight"]
        self.vectors, self.dtype = table[: config.vocab_size], table.dtype

    @functools.cached_property
    def like(self) -> np.ndarray:
        """An array of the type and width of the features, (0, H)."""
        return np.empty((0, self.shapes(self.config)["head.weight"][-1]), self.dtype)
