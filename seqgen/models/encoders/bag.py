"""A bag of words, or of characters: the baseline that knows no order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from seqgen.configs import MOST_WIDTH, SHARED_SEARCH, setting
from seqgen.configs.labelling import Pooling, SentenceConfig
from seqgen.models.encoders.sentence_encoder import SentenceEncoder, at_ends
from seqgen.registry import SHARED_DOCS


@dataclass(frozen=True, kw_only=True)
class BagConfig(SentenceConfig):
    """A vector for each token and nothing else."""

    recipe: ClassVar[Mapping[str, Any]] = {**SentenceConfig.recipe, "lr": 2e-2}

    embedding_size: int = setting("Width of the vectors.", 100, low=1, high=MOST_WIDTH)
    dropout: float = setting(
        SHARED_DOCS["dropout"], 0.0, low=0, below=1, search=SHARED_SEARCH["dropout"]
    )

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return False  # looking vectors up takes longer than products with them


class Bag(SentenceEncoder):
    """The registry's `bag`: features are the embeddings themselves.

    A classifier reads their mean, so that its logits are linear in the counts of the tokens, as in
    Joulin et al. (2017), "Bag of tricks for efficient text classification". A tagger on it tells
    each word's tag by the word alone.
    """

    pooling: ClassVar[Pooling] = "mean"

    def __init__(self, config: BagConfig, width: int | None = None) -> None:
        super().__init__()
        self.size, self.embedding = width or config.embedding_size, nn.Identity()
        if width is None:
            self.embedding = nn.Embedding(config.vocab_size, self.size)
            nn.init.uniform_(self.embedding.weight, -1 / self.size, 1 / self.size)

    def forward(self, values: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        features = self.embedding(values)
        return features, at_ends(features, lengths)
