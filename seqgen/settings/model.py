"""Settings that every architecture's configuration has."""

from __future__ import annotations

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
    """A model size: its settings, and the tokens and text that make it worthwhile.

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


def look_up_ratio(rows: Iterable[tuple[float, float]], ratio: float) -> float:
    """Look up the value of the first row whose limit exceeds the ratio."""
    return next(value for limit, value in rows if ratio < limit)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """Base class of every architecture's configuration."""

    derived: ClassVar[frozenset[str]] = frozenset({"vocab_size"})
    recipe: ClassVar[Mapping[str, Any]] = {}
    """Training settings that suit this architecture, where the user gives none."""
    sizes: ClassVar[tuple[Size, ...]] = (Size({}),)
    """Model sizes for different budgets and texts, largest first; the last one fits any."""

    vocab_size: int = setting(
        "Number of tokens in the vocabulary; it follows from the tokenizer.",
        low=1,
        high=MOST_TOKENS,
    )

    @classmethod
    def sizes_for(cls, vocab_size: int, given: Collection[str]) -> tuple[Size, ...]:
        """Return `sizes`, with further settings that suit a vocabulary size.

        Args:
            vocab_size: the number of tokens.
            given: the names of the user's settings.
        """
        return cls.sizes

    @classmethod
    def recipe_for(cls, tokens: int) -> Mapping[str, Any]:
        """Choose the recipe of training settings for a text of `tokens` tokens."""
        return cls.recipe

    @classmethod
    def regularised(
        cls, overfitting_ratio: float, spelled: bool = False, rate_is_open: bool = False
    ) -> dict[str, Any]:
        """Choose the settings that reduce overfitting, such as dropout.

        Args:
            overfitting_ratio: passes over the text x parameters / tokens of the text.
            spelled: tokens are characters or bytes.
            rate_is_open: the optimizer is the recipe's, and its learning rate may be chosen.
        """
        if "dropout" not in cls.fields():
            return {}
        return {"dropout": look_up_ratio(DROPOUT_BY_OVERFITTING_RATIO, overfitting_ratio)}

    @property
    def static_vector_size(self) -> int | None:
        """Width of the token vectors of a word vector model; None for contextual models.

        Of a model of word vectors, whose `token_vectors` are its features (`--features`). None if
        what it knows of a token depends on the tokens around it.
        """
        return None

    def as_new(self, given: Collection[str]) -> ModelConfig:
        """Complete the configuration of a new model by defaults that stored models lack.

        Args:
            given: the names of the user's settings.
        """
        return self

    def shared_weights(self) -> list[list[str]]:
        """List the names of each weight that several parts of a model share."""
        ties = getattr(self, "tie_weights", False)
        return [["embedding.weight", "head.weight"]] if ties else []

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        """Check whether bf16 speeds up matrix products of this size on a CPU."""
        return True
