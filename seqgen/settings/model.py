"""What the configuration of every architecture has, and those of classifiers and taggers."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqgen.settings.setting import MOST_TOKENS, Config, setting

# How n-gram models smooth their counts.
Smoothing = Literal[
    "maximum-likelihood",
    "add-delta",
    "stupid-backoff",
    "kneser-ney",
    "modified-kneser-ney",
    "witten-bell",
    "jelinek-mercer",
    "katz",
]


@dataclass(frozen=True)
class Size:
    """How large a model is, and what that takes to be worth it.

    Attributes:
        settings: of the model.
        tokens: how many tokens of training it needs to do better than the next smaller one.
        text: how many tokens of text it needs to do so.
    """

    settings: Mapping[str, Any]
    tokens: float = 0.0
    text: float = 0.0


# Dropout by the overfitting ratio, passes over the text x parameters / tokens of the text: each
# row holds for ratios below its first number.
DROPOUT_BY_OVERFITTING_RATIO = (
    (8, 0.0),
    (25, 0.1),
    (70, 0.2),
    (200, 0.3),
    (500, 0.4),
    (1500, 0.5),
    (math.inf, 0.6),
)


def by_ratio(rows: Iterable[tuple[float, float]], ratio: float) -> float:
    """Return the value of the first row whose limit the ratio is below."""
    return next(value for limit, value in rows if ratio < limit)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """What every architecture's configuration has."""

    derived: ClassVar[frozenset[str]] = frozenset({"vocab_size"})
    recipe: ClassVar[Mapping[str, Any]] = {}
    """Training settings that suit this architecture, where the user gives none."""
    sizes: ClassVar[tuple[Size, ...]] = (Size({}),)
    """What suits more or less time and text, the largest first; the last suits any."""

    vocab_size: int = setting(
        "Number of tokens in the vocabulary; it follows from the tokenizer.",
        low=1,
        high=MOST_TOKENS,
    )

    @classmethod
    def sizes_for(cls, vocab_size: int, given: Collection[str]) -> tuple[Size, ...]:
        """Return `sizes` with what else suits a vocabulary.

        Args:
            vocab_size: the number of tokens.
            given: the names of the user's settings.
        """
        return cls.sizes

    @classmethod
    def recipe_for(cls, tokens: int) -> Mapping[str, Any]:
        """Return the recipe for a training text of so many tokens."""
        return cls.recipe

    @classmethod
    def regularised(
        cls, overfitting_ratio: float, spelled: bool = False, rate_is_open: bool = False
    ) -> dict[str, Any]:
        """Return the settings that reduce overfitting.

        Args:
            overfitting_ratio: passes over the text x parameters / tokens of the text.
            spelled: tokens are characters or bytes.
            rate_is_open: the optimizer is the recipe's, and its learning rate may be chosen.
        """
        if "dropout" not in cls.fields():
            return {}
        return {"dropout": by_ratio(DROPOUT_BY_OVERFITTING_RATIO, overfitting_ratio)}

    def as_new(self, given: Collection[str]) -> ModelConfig:
        """Return the configuration of a new model: with defaults that stored models do not have.

        Args:
            given: the names of the user's settings.
        """
        return self

    def shared_weights(self) -> list[list[str]]:
        """Return the names of each weight that several parts of a model share."""
        ties = getattr(self, "tie_weights", False)
        return [["embedding.weight", "head.weight"]] if ties else []

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        """Return whether products in bf16 units pay on a CPU: for small ones casting costs more."""
        return True


# Of a classifier or a tagger, what no user sets.
LABELLING = frozenset({"classes", "feature_model"})
Pooling = Literal["last", "mean", "max", "all"]


@dataclass(frozen=True, kw_only=True)
class SentenceConfig(ModelConfig):
    """What configurations of encoders of sentences have in common."""

    recipe: ClassVar[Mapping[str, Any]] = {
        "optimizer": "adamw",
        "lr": 2e-3,
        "batch_size": 32,
        "weight_decay": 0.01,
    }


@dataclass(frozen=True, kw_only=True)
class LabellingConfig(ModelConfig):
    """What stands between features and labels.

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
    """Return the configuration of classifiers and taggers: the trunk's settings and their own.

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
