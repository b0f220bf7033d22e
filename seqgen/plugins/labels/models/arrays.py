"""What makes features of a whole sentence for a classifier or a tagger, over arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from seqgen.engines.parts import fill_over_arrays, shapes_of
from seqgen.engines.weights import Shapes, Weights
from seqgen.models.arrays import ArrayModel, ArrayNetwork
from seqgen.plugins.labels.models.labelling import at_ends, require_window
from seqgen.plugins.labels.settings import LabellingConfig, Pooling
from seqgen.settings import ModelConfig


class ArrayEncoder:
    """A `SentenceEncoder` over arrays.

    Args:
        config: of the architecture.
        weights: see `shapes`.
        read: the width of the vectors that it reads in the place of tokens; None of most, which
            read tokens.

    Attributes:
        vectors: see `ArrayNetwork`.
        window: how many tokens a sentence may have, its start included; None for any number.
        pooling: see `SentenceEncoder`.
        table: the name of the vectors of tokens.
        size: the width of its features.
    """

    table: ClassVar[str] = "encoder.inputs.weight"
    pooling: ClassVar[Pooling] = "last"
    vectors: np.ndarray | None = None
    window: int | None = None
    size: int

    def __init__(self, config: ModelConfig, weights: Weights, read: int | None = None) -> None:
        self.config = config
        fill_over_arrays(self, self.pieces(config, read), weights)
        if read is None:
            self.vectors = weights[self.table][: config.vocab_size]

    @classmethod
    def suits(cls, config: LabellingConfig) -> bool:
        """Return whether it has these settings."""
        return True

    @classmethod
    def width(cls, config: ModelConfig, read: int | None = None) -> int:
        """Return how wide its features are."""
        encoder = cls.__new__(cls)
        encoder.pieces(config, read)
        return encoder.size

    @classmethod
    def shapes(cls, config: ModelConfig, read: int | None = None) -> Shapes:
        """Return the shape of every weight, by name."""
        return shapes_of(cls, config, read)

    @classmethod
    def shared(cls, config: ModelConfig) -> list[list[str]]:
        """Return the names of each weight that several parts share."""
        return []

    def __call__(self, values: np.ndarray, lengths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """See `SentenceEncoder.forward`."""
        return self.features(values, lengths)


class LastStatesArrays(ArrayEncoder):
    """`LastStates` over arrays.

    Attributes:
        kind: the class of the language model, which has no head.
    """

    kind: ClassVar[type[ArrayModel]]

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.model = self.kind(config, weights.part("model"))
        self.window, self.vectors = self.model.window, self.model.vectors

    @classmethod
    def suits(cls, config: LabellingConfig) -> bool:
        return cls.kind.suits(config)

    @classmethod
    def width(cls, config: ModelConfig) -> int:
        return cls.kind.shapes(config)["head.weight"][1]

    @classmethod
    def shapes(cls, config: ModelConfig) -> Shapes:
        return without_head(cls.kind, config)[0]

    @classmethod
    def shared(cls, config: ModelConfig) -> list[list[str]]:
        return without_head(cls.kind, config)[1]

    def __call__(self, values: np.ndarray, lengths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        require_window(max(lengths), self.window)
        features, _ = self.model.hidden(values, None)
        return features, at_ends(features, lengths)


def without_head(kind: type[ArrayNetwork], config: ModelConfig) -> tuple[Shapes, list[list[str]]]:
    """Return the shapes of a model's weights, and those that are shared, as a part's `model`."""

    def kept(name: str) -> bool:
        return "head" not in name.split(".")

    shapes = {f"model.{name}": shape for name, shape in kind.shapes(config).items() if kept(name)}
    groups = kind.shared(config)
    return shapes, [[f"model.{name}" for name in names if kept(name)] for names in groups]
