"""The settings of Hawk (De et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.models.shared_settings import shared
from seqgen.settings import MOST_WIDTH, ModelConfig, Size, ranges, setting


@dataclass(frozen=True, kw_only=True)
class HawkConfig(ModelConfig):
    """Configuration of Hawk: blocks of a gated linear recurrence and a feed-forward layer."""

    recipe: ClassVar[Mapping[str, Any]] = RecurrentConfig.recipe
    sizes: ClassVar[tuple[Size, ...]] = (
        Size({"num_layers": 2, "hidden_size": 192}, tokens=1.6e6, text=1.5e5),
        Size({"num_layers": 2, "hidden_size": 128}, tokens=1.6e6),
        Size({"num_layers": 2, "hidden_size": 96}),
    )

    hidden_size: int = shared("hidden_size", 192)
    num_layers: int = shared("num_layers", 2)
    recurrent_size: int | None = setting(
        "Width of the recurrence; by default 3/2 of the hidden size.", low=1, high=2 * MOST_WIDTH
    )
    ffn_size: int | None = setting(
        "Width of the feed-forward layers; by default the hidden size.", low=1, high=4 * MOST_WIDTH
    )
    conv_width: int = setting(
        "Number of tokens that the convolution before the recurrence sees.",
        4,
        ranges.FROM_1_TO_1000,
    )
    dropout: float = shared(
        "dropout", 0.1, " It applies to the embeddings and to the output of each sublayer."
    )
    tie_weights: bool = shared("tie_weights", False)

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return batch_size * seq_len * self.hidden_size**2 >= 1 << 22

    @property
    def width(self) -> int:
        """Width D of the recurrence."""
        return self.recurrent_size or math.ceil(1.5 * self.hidden_size)

    @property
    def feed_forward_size(self) -> int:
        """Width of the feed-forward part's inner layer."""
        return self.ffn_size or self.hidden_size
