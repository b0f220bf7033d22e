"""Configurations of models that learn word vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqgen.settings import ModelConfig, ranges, setting

# Beyond so many tokens of text, word2vec's rate falls with the square root of their number, to half
# of it at most: a smaller rate orders all pairs of words better, but has worse nearest words.
FULL_RATE_TOKENS, LEAST_RATE_SHARE = 500_000, 0.5
# With noise words, more frequent ones than this share of a text are left out at times.
SUBSAMPLE = 1e-3


@dataclass(frozen=True, kw_only=True)
class WordConfig(ModelConfig):
    """Settings that all models of word vectors share."""

    recipe: ClassVar[Mapping[str, Any]] = {
        "optimizer": "adam",
        "beta2": 0.999,
        "weight_decay": 0.0,
    }

    vectors: ClassVar[tuple[str, ...]] = ("embedding",)
    """Whose rows, added up, are the vectors of words."""

    embedding_size: int = setting("Width of the vectors.", 100, ranges.WIDTHS)
    context_size: int = setting(
        "How many words before and after a word are its context.", 5, ranges.FROM_1_TO_1000
    )

    @property
    def tables(self) -> dict[str, int]:
        """Name and width of each table that has a row per word."""
        return {"embedding": self.embedding_size, "context": self.embedding_size}

    @property
    def static_vector_size(self) -> int:
        return self.tables[self.vectors[0]]

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return False  # looking vectors up takes longer than products with them


@dataclass(frozen=True, kw_only=True)
class SampledWordConfig(WordConfig):
    """Settings of models that subsample frequent words and draw context sizes at random."""

    negatives: int = setting(
        "Number of noise words in negative sampling. With 0 the prediction is "
        "made by the full softmax, for small vocabularies.",
        5,
        low=0,
        high=1000,
    )
    dynamic: bool | None = setting(
        "Draw the size of each word's context from 1 to context_size, so that near words count "
        "more; by default with noise words only."
    )
    subsample: float | None = setting(
        "Leave out words that are more frequent than this share of the text, the more often the "
        "more frequent they are: each is kept with probability sqrt(subsample / share) + "
        "subsample / share. With 0 all are kept. By default 0.001 with noise words, and 0 without.",
        bounds=ranges.SHARES,
    )

    @property
    def draws_contexts(self) -> bool:
        """True if the size of each word's context is drawn at random."""
        return bool(self.negatives) if self.dynamic is None else self.dynamic

    @property
    def kept_share(self) -> float:
        """Relative frequency above which words are subsampled; 0 keeps all words."""
        if self.subsample is None:
            return SUBSAMPLE if self.negatives else 0.0
        return self.subsample


@dataclass(frozen=True, kw_only=True)
class Word2VecConfig(SampledWordConfig):
    """Configuration of word2vec: skip-gram or CBOW, negative sampling or full softmax."""

    recipe: ClassVar[Mapping[str, Any]] = {
        **SampledWordConfig.recipe,
        "optimizer": "adagrad",
        "lr": 0.3,
        "batch_size": 64,
        "seq_len": 128,
    }

    @classmethod
    def recipe_for(cls, tokens: int) -> Mapping[str, Any]:
        share = min(1.0, math.sqrt(FULL_RATE_TOKENS / max(1, tokens)))
        return {**cls.recipe, "lr": cls.recipe["lr"] * max(LEAST_RATE_SHARE, share)}

    form: Literal["skip-gram", "cbow"] = setting(
        "skip-gram predicts the words around each word from it; cbow predicts a word from the "
        "mean of the words around it.",
        "skip-gram",
    )
    noise_power: float = setting(
        "Noise words are drawn in proportion to their counts to this power.", 0.75, low=0, high=10
    )
    noise_words: int = setting(
        "How many noise words are drawn for each 128 words of a row of text, which share them.",
        64,
        ranges.WIDTHS,
    )


@dataclass(frozen=True, kw_only=True)
class GloVeConfig(WordConfig):
    """Configuration of GloVe: weighted least squares on log co-occurrence counts."""

    recipe: ClassVar[Mapping[str, Any]] = {
        **WordConfig.recipe,
        "lr": 0.01,
        "batch_size": 64,
        "seq_len": 128,
    }

    vectors: ClassVar[tuple[str, ...]] = ("embedding", "context")

    count_limit: float = setting(
        "Pairs that occur more often than this, x_max, count no more than those that occur as "
        "often.",
        100.0,
        above=0,
        high=1e9,
    )
    count_power: float = setting(
        "Rarer pairs count (x / x_max) to this power, alpha.", 0.75, above=0, high=10
    )

    @property
    def tables(self) -> dict[str, int]:
        return {**super().tables, "bias": 1, "context_bias": 1}
