"""Configurations of classifiers and taggers: the trunk's settings and the head's."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqgen.plugins.labels.task import RECIPE
from seqgen.settings.model import ModelConfig, Size
from seqgen.settings.setting import MOST_TOKENS, setting

Pooling = Literal["last", "mean", "max", "all"]
# What no user sets.
LABELLING = frozenset({"classes", "feature_model"})


@dataclass(frozen=True, kw_only=True)
class SentenceConfig(ModelConfig):
    """Settings that all sentence encoders share."""

    recipe: ClassVar[Mapping[str, Any]] = RECIPE


@dataclass(frozen=True, kw_only=True)
class LabellingConfig(ModelConfig):
    """Settings of the label head: pooling, pretrained features and training defaults.

    The training settings of a language model are not for labels: its place is taken by those that
    suit most encoders.
    """

    derived: ClassVar[frozenset[str]] = ModelConfig.derived | LABELLING
    recipe: ClassVar[Mapping[str, Any]] = SentenceConfig.recipe
    sizes: ClassVar[tuple[Size, ...]] = (Size({}),)

    classes: int = setting(
        "Number of labels; it follows from the data.", low=1, high=MOST_TOKENS, default=1
    )
    feature_model: dict[str, Any] | None = setting(
        "The trained model whose features are read with the tokens (--features): its digest, "
        "architecture and configuration."
    )
    pooling: Pooling | None = setting(
        "For classifiers: the vector of a whole text. The last state, of both directions where "
        "there are two (last), the mean or the maximum over its tokens, or all three side by side "
        "(Howard and Ruder 2018). By default the mean for bag and encoder, else the last state."
    )


@functools.cache
def labelling_config(trunk: type[ModelConfig]) -> type[ModelConfig]:
    """Build the configuration class of classifiers and taggers on a trunk.

    Args:
        trunk: the configuration class of the architecture that makes the features.
    """

    @dataclass(frozen=True, kw_only=True)
    class OfTrunk(LabellingConfig, trunk):
        derived: ClassVar[frozenset[str]] = trunk.derived | LABELLING
        recipe: ClassVar[Mapping[str, Any]] = (
            trunk if issubclass(trunk, SentenceConfig) else LabellingConfig
        ).recipe
        sizes: ClassVar[tuple[Size, ...]] = LabellingConfig.sizes

    OfTrunk.__name__ = f"Labelling{trunk.__name__}"
    return OfTrunk
