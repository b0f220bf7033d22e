"""The settings that all models that write from a source have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seqgen.engines.parts import Linear, Piece, Table
from seqgen.settings import ModelConfig, by_ratio, ranges, require, setting

# Dropout by the overfitting ratio, as for models of text: where targets are sentences, and where
# they are spelled out, in characters or bytes.
DROPOUT = {
    False: ((30, 0.1), (70, 0.2), (1000, 0.3), (math.inf, 0.4)),
    True: ((200, 0.0), (1000, 0.1), (5000, 0.2), (math.inf, 0.3)),
}


@dataclass(frozen=True, kw_only=True)
class SourceConfig(ModelConfig):
    """What the configuration of a model with sources has besides its layers.

    A source is ids of the target's own vocabulary, unless `source_vocab_size` gives it one of its
    own or `source_features` says that it is vectors.
    """

    derived: ClassVar[frozenset[str]] = frozenset(
        {"vocab_size", "source_vocab_size", "source_features"}
    )

    recipe: ClassVar[Mapping[str, Any]] = {
        "optimizer": "muon",
        "lr": 4e-3,
        "batch_size": 32,
        "weight_decay": 0.01,
    }

    source_vocab_size: int | None = setting(
        "Number of tokens of the source's own tokenizer; none if it is joint.", bounds=ranges.TOKENS
    )
    source_features: int | None = setting(
        "Width of source vectors; none for tokens.", bounds=ranges.WIDTHS
    )
    share_embeddings: bool | None = setting(
        "Use one embedding for source and target; by default if their tokenizer is joint."
    )

    @classmethod
    def regularised(
        cls, overfitting_ratio: float, spelled: bool = False, rate_is_open: bool = False
    ) -> dict[str, Any]:
        """Return the settings that reduce overfitting.

        A sentence has several good translations, so that certainty is discouraged too; a string
        that is spelled out, such as a date, has one.
        """
        return {
            "dropout": by_ratio(DROPOUT[spelled], overfitting_ratio),
            "label_smoothing": 0.0 if spelled else 0.1,
        }

    def __post_init__(self) -> None:
        super().__post_init__()
        one = self.source_vocab_size is None or self.source_features is None
        require(one, "a source is tokens or vectors: source_vocab_size or source_features")
        require(
            not self.share_embeddings or self.joint,
            "share_embeddings needs one tokenizer for both sides",
        )

    @property
    def joint(self) -> bool:
        """Whether source and target have the same tokens."""
        return self.source_vocab_size is None and self.source_features is None

    @property
    def shares_embeddings(self) -> bool:
        """Whether source and target have one embedding."""
        return self.joint if self.share_embeddings is None else self.share_embeddings

    def shared_weights(self) -> list[list[str]]:
        names = ["embedding.weight"] + ["head.weight"] * self.tie_weights
        names += ["encoder.inputs.weight"] * self.shares_embeddings
        return [names] if len(names) > 1 else []

    def source_inputs(self, width: int) -> Piece:
        """Return what makes vectors (S, L, width) of source values: an embedding, or a map."""
        if self.source_features is not None:
            return Linear(self.source_features, width)
        return Table(self.source_vocab_size or self.vocab_size, width)
