"""Base classes of models that compute with NumPy arrays."""

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
    """Network over NumPy arrays with constant weights.

    It answers as the torch module of the same configuration and weights does, but for rounding.

    Attributes:
        dtype: the type of its numbers.
        vectors: (V, D), those of the tokens; None where they have none.
        window: how many tokens it reads at most; None for any number.
        both_ways: see `Model`.
        reads_blocks: whether matrices may be those of a file in fewer bits, `BlockMatrix`.
    """

    both_ways: ClassVar[bool] = False
    reads_blocks: ClassVar[bool] = False
    dtype: np.dtype
    vectors: np.ndarray | None = None
    window: int | None = None

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        raise NotImplementedError

    @staticmethod
    def suits(config: Any) -> bool:
        """Check whether models with this configuration can run over arrays."""
        return True

    @classmethod
    def shapes(cls, config: Any) -> Shapes:
        """List the shape of every weight by name; shared weights appear under each name."""
        return shapes_of(cls, config)

    @classmethod
    def shared(cls, config: Any) -> list[list[str]]:
        """List the groups of parameter names that share one weight."""
        return config.shared_weights()

    @property
    def precision(self) -> str:
        """Data type of the computation."""
        return self.dtype.name

    def parameter_count(self) -> int:
        """Count the trained parameters; shared ones count once."""
        return parameter_count(self.shapes(self.config), self.shared(self.config))

    def ids(self, ids: np.ndarray) -> np.ndarray:
        """Convert token ids of any shape to an int64 array."""
        return ids

    def token_vectors(self) -> np.ndarray | None:
        """Return the embedding of each token, (V, D); None without embeddings."""
        return self.vectors


class ArrayModel(ArrayNetwork, InferenceModel):
    """Language model over NumPy arrays."""

    def step(self, tokens: Sequence[int], state: State) -> tuple[np.ndarray, State]:
        logits, state = self(np.array(tokens)[:, None], state)
        return logits[:, 0], state


class NeuralArrays(HiddenStateModel, ArrayModel):
    """Neural language model over NumPy arrays: hidden states and a linear head."""

    __call__ = HiddenStateModel.predict

    def __init__(self, config: ModelConfig, weights: Weights, ops: Ops = ArrayOps) -> None:
        self.config = config
        fill_over_arrays(self, self.pieces(config), weights, ops)
        table = weights["embedding.weight"]
        self.vectors, self.dtype = table[: config.vocab_size], table.dtype

    @functools.cached_property
    def like(self) -> np.ndarray:
        """Empty array (0, H) that has the data type and width of the features."""
        return np.empty((0, self.shapes(self.config)["head.weight"][-1]), self.dtype)
