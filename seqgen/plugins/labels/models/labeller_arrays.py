"""Classifiers and taggers over arrays, with the pretrained features that they may read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from seqgen import registry
from seqgen.engines.arrays import identity, linear_map
from seqgen.engines.ops import ArrayOps
from seqgen.engines.weights import Shapes, Weights, linear_shapes
from seqgen.models.arrays import ArrayModel, ArrayNetwork
from seqgen.plugins.labels.models.elmo_arrays import ELMoArrays
from seqgen.plugins.labels.models.labelling import (
    ArrayEncoder,
    LabelsOfFeatures,
    LastStatesArrays,
    head_width,
    without_head,
)
from seqgen.plugins.labels.settings import LabellingConfig

# Takes sentences, see `SentenceEncoder.forward`, to features (N, S, L, D); and how many tokens a
# sentence may have, its start included, None for any number.
Made = tuple[Callable[[np.ndarray, Sequence[int]], np.ndarray], int | None]


@dataclass(frozen=True)
class FeaturesArrays:
    """Shapes and constructor of the array version of `Features`.

    Attributes:
        shapes: of their weights.
        shared: the names of each weight that several parts share.
        layers: how many there are, N.
        size: the width D of a layer.
        make: takes the weights to the features.
    """

    shapes: Shapes
    shared: list[list[str]]
    layers: int
    size: int
    make: Callable[[Weights], Made]


def features_over_arrays(about: Mapping[str, Any]) -> FeaturesArrays | None:
    """Build the array version of a stored feature extractor; None if it has no array version.

    Args:
        about: see `features_like`.
    """
    row = registry.architecture(about["architecture"])
    config, kind = row.load_config().read(about["model"]), row.load_arrays()
    if kind is None or not kind.suits(config):
        return None
    if (size := config.static_vector_size) is not None:

        def of_words(weights: Weights) -> Made:
            return lambda ids, lengths: weights["vectors"][ids][None], None

        return FeaturesArrays({"vectors": (config.vocab_size, size)}, [], 1, size, of_words)
    if issubclass(kind, ELMoArrays):
        size = 2 * config.equations()[-1].sizes[0]

        def of_layers(weights: Weights) -> Made:
            return kind(config, weights.part("model")).layers, None

        return FeaturesArrays(*without_head(kind, config), config.num_layers + 1, size, of_layers)
    states = type("LastStatesArrays", (LastStatesArrays,), {"kind": kind})

    def of_states(weights: Weights) -> Made:
        encoder = states(config, weights.part("model"))
        return lambda ids, lengths: encoder(ids, lengths)[0][None], encoder.window

    return FeaturesArrays(
        {f"model.{name}": shape for name, shape in states.shapes(config).items()},
        [[f"model.{name}" for name in names] for names in states.shared(config)],
        1,
        states.width(config),
        of_states,
    )


class FeaturedArrays(ArrayEncoder):
    """Array version of `Featured`."""

    trunk_class: ClassVar[type[ArrayEncoder]]

    def __init__(self, config: LabellingConfig, weights: Weights) -> None:
        about, mix = features_over_arrays(config.feature_model), weights.part("mix")
        self.features, window = about.make(weights.part("features"))
        self.shares = mix["gamma"] * ArrayOps.softmax(mix["w"])
        self.vectors = weights["embedding.weight"]
        read = self.vectors.shape[1] + about.size
        self.trunk = self.trunk_class(config, weights.part("trunk"), read)
        windows = [one for one in (window, self.trunk.window) if one is not None]
        self.window = min(windows, default=None)

    def __call__(self, values: np.ndarray, lengths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        values = values[:, : max(lengths)]
        mixed = np.tensordot(self.shares, self.features(values, lengths), 1)
        return self.trunk(np.concatenate([self.vectors[values], mixed], -1), lengths)

    @classmethod
    def suits(cls, config: LabellingConfig) -> bool:
        return features_over_arrays(config.feature_model) is not None

    @classmethod
    def width(cls, config: LabellingConfig) -> int:
        return cls.trunk_class.width(config, cls._read(config))

    @classmethod
    def shapes(cls, config: LabellingConfig) -> Shapes:
        about, own = features_over_arrays(config.feature_model), _own_width(config)
        trunk = cls.trunk_class.shapes(config, cls._read(config))
        return {
            **{f"features.{name}": shape for name, shape in about.shapes.items()},
            "mix.w": (about.layers,),
            "mix.gamma": (1,),
            "embedding.weight": (config.vocab_size, own),
            **{f"trunk.{name}": shape for name, shape in trunk.items()},
        }

    @classmethod
    def shared(cls, config: LabellingConfig) -> list[list[str]]:
        groups = features_over_arrays(config.feature_model).shared
        return [[f"features.{name}" for name in names] for names in groups]

    @staticmethod
    def _read(config: LabellingConfig) -> int:
        """Compute the width of the trunk's inputs: learned embedding plus pretrained features."""
        return _own_width(config) + features_over_arrays(config.feature_model).size


def _own_width(config: Any) -> int:
    """Return the width of the token embeddings that are learned with the trunk."""
    return getattr(config, "embedding_size", None) or config.hidden_size


@functools.cache
def featured(trunk: type[ArrayEncoder]) -> type[FeaturedArrays]:
    """Build the class of a trunk's encoders that also read pretrained features."""
    about = {"trunk_class": trunk, "pooling": trunk.pooling}
    return type("FeaturedArrays", (FeaturedArrays,), about)


class LabellerArrays(LabelsOfFeatures, ArrayNetwork):
    """Array version of `Labeller`."""

    trunk_class: ClassVar[type[ArrayEncoder]]
    __call__ = LabelsOfFeatures.logits

    def __init__(self, config: LabellingConfig, weights: Weights) -> None:
        self.config, self.output_dropout = config, identity
        self.trunk = self._trunk(config)(config, weights.part("trunk"))
        self.window, self.vectors = self.trunk.window, self.trunk.vectors
        self.pooling = config.pooling or self.trunk.pooling
        self.head, self.dtype = linear_map(weights.part("head")), weights["head.weight"].dtype

    @classmethod
    def suits(cls, config: LabellingConfig) -> bool:
        return cls._trunk(config).suits(config)

    @classmethod
    def shapes(cls, config: LabellingConfig) -> Shapes:
        trunk = cls._trunk(config)
        shapes = {f"trunk.{name}": shape for name, shape in trunk.shapes(config).items()}
        width = head_width(config, trunk.pooling, cls.by_word, trunk.width(config))
        return shapes | linear_shapes("head", width, config.classes)

    @classmethod
    def shared(cls, config: LabellingConfig) -> list[list[str]]:
        groups = cls._trunk(config).shared(config)
        return [[f"trunk.{name}" for name in names] for names in groups]

    @classmethod
    def _trunk(cls, config: LabellingConfig) -> type[ArrayEncoder]:
        return cls.trunk_class if config.feature_model is None else featured(cls.trunk_class)


@functools.cache
def labeller_of(trunk: type, by_word: bool) -> type[LabellerArrays]:
    """Build the class of array classifiers on a trunk, or of taggers if `by_word`.

    Args:
        trunk: the class of an array model of text, of an encoder, or of a model that names its
            `sentence_encoder`.
        by_word: the taggers.
    """
    encoder = getattr(trunk, "sentence_encoder", trunk)
    if issubclass(trunk, ArrayModel):
        encoder = type("LastStatesArrays", (LastStatesArrays,), {"kind": trunk})
    return type("LabellerArrays", (LabellerArrays,), {"trunk_class": encoder, "by_word": by_word})


classifier_of = functools.partial(labeller_of, by_word=False)
tagger_of = functools.partial(labeller_of, by_word=True)
