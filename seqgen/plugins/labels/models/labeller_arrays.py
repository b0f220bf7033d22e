"""Classifiers and taggers over arrays, on encoders of sentences or on language models."""

from __future__ import annotations

import functools
from typing import ClassVar

from seqgen.engines.arrays import linear_map, unchanged
from seqgen.engines.weights import Shapes, Weights, linear_shapes
from seqgen.models.arrays import ArrayModel, ArrayNetwork
from seqgen.plugins.labels.models.arrays import ArrayEncoder, LastStatesArrays
from seqgen.plugins.labels.models.features_arrays import featured
from seqgen.plugins.labels.models.labelling import LabelsOfFeatures, head_width
from seqgen.plugins.labels.settings import LabellingConfig


class LabellerArrays(LabelsOfFeatures, ArrayNetwork):
    """`Labeller` over arrays, see there."""

    trunk_class: ClassVar[type[ArrayEncoder]]
    __call__ = LabelsOfFeatures.logits

    def __init__(self, config: LabellingConfig, weights: Weights) -> None:
        self.config, self.output_dropout = config, unchanged
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
    """Return the class of the classifiers on a trunk, or of the taggers.

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
