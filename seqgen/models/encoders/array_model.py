"""Classifiers and taggers over arrays, on encoders of sentences or on language models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from seqgen.configs import ModelConfig
from seqgen.configs.model import LabellingConfig, Pooling
from seqgen.models.array_network import ArrayNetwork
from seqgen.models.encoders.labelling import (
    LabelsOfFeatures,
    at_ends,
    head_width,
    require_window,
)
from seqgen.models.engines.arrays import unchanged
from seqgen.models.engines.weights import Shapes, Weights, linear_shapes
from seqgen.models.reader import ArrayModel


class ArrayEncoder:
    """A `SentenceEncoder` over arrays.

    Args:
        config: of the architecture.
        weights: see `shapes`.

    Attributes:
        vectors: see `ArrayNetwork`.
        window: how many tokens a sentence may have, its start included; None for any number.
        pooling: see `SentenceEncoder`.
    """

    pooling: ClassVar[Pooling] = "last"
    vectors: np.ndarray | None = None
    window: int | None = None

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        raise NotImplementedError

    @classmethod
    def suits(cls, config: LabellingConfig) -> bool:
        """Return whether it has these settings."""
        return True

    @classmethod
    def width(cls, config: ModelConfig) -> int:
        """Return how wide its features are."""
        raise NotImplementedError

    @classmethod
    def shapes(cls, config: ModelConfig) -> Shapes:
        """Return the shape of every weight, by name."""
        raise NotImplementedError

    @classmethod
    def shared(cls, config: ModelConfig) -> list[list[str]]:
        """Return the names of each weight that several parts share."""
        return []

    def __call__(self, values: np.ndarray, lengths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """See `SentenceEncoder.forward`."""
        raise NotImplementedError


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
        shapes = cls.kind.shapes(config).items()
        return {f"model.{name}": shape for name, shape in shapes if not name.startswith("head.")}

    @classmethod
    def shared(cls, config: ModelConfig) -> list[list[str]]:
        groups = cls.kind.shared(config)
        return [[f"model.{n}" for n in names if not n.startswith("head.")] for names in groups]

    def __call__(self, values: np.ndarray, lengths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        require_window(max(lengths), self.window)
        features, _ = self.model.hidden(values, None)
        return features, at_ends(features, lengths)


class LabellerArrays(LabelsOfFeatures, ArrayNetwork):
    """`Labeller` over arrays, see there."""

    trunk_class: ClassVar[type[ArrayEncoder]]
    __call__ = LabelsOfFeatures.logits

    def __init__(self, config: LabellingConfig, weights: Weights) -> None:
        self.config, self.output_dropout = config, unchanged
        self.trunk = self.trunk_class(config, weights.part("trunk"))
        self.window, self.vectors = self.trunk.window, self.trunk.vectors
        self.pooling = config.pooling or self.trunk.pooling
        self.head, self.dtype = weights.affine("head"), weights["head.weight"].dtype

    @classmethod
    def suits(cls, config: LabellingConfig) -> bool:
        return config.feature_model is None and cls.trunk_class.suits(config)

    @classmethod
    def shapes(cls, config: LabellingConfig) -> Shapes:
        trunk = cls.trunk_class
        shapes = {f"trunk.{name}": shape for name, shape in trunk.shapes(config).items()}
        width = head_width(config, trunk.pooling, cls.by_word, trunk.width(config))
        return shapes | linear_shapes("head", width, config.classes)

    @classmethod
    def shared(cls, config: LabellingConfig) -> list[list[str]]:
        return [[f"trunk.{name}" for name in names] for names in cls.trunk_class.shared(config)]


@functools.cache
def classifier_of(trunk: type) -> type[LabellerArrays]:
    """Return the class of the classifiers on a trunk.

    Args:
        trunk: the class of an array model of text, of an encoder, or of a model that names its
            `sentence_encoder`.
    """
    return _labeller_of(trunk, by_word=False)


@functools.cache
def tagger_of(trunk: type) -> type[LabellerArrays]:
    """Return the class of the taggers on a trunk; see `classifier_of`."""
    return _labeller_of(trunk, by_word=True)


def _labeller_of(trunk: type, by_word: bool) -> type[LabellerArrays]:
    encoder = getattr(trunk, "sentence_encoder", trunk)
    if issubclass(trunk, ArrayModel):
        encoder = type("LastStatesArrays", (LastStatesArrays,), {"kind": trunk})
    return type("LabellerArrays", (LabellerArrays,), {"trunk_class": encoder, "by_word": by_word})
