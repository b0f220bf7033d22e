"""Settings of the feed-forward language model over a window of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seqgen.models.shared_settings import shared
from seqgen.settings import MOST_WIDTH, Bounds, ModelConfig, ranges, require, setting


@dataclass(frozen=True, kw_only=True)
class WindowConfig(ModelConfig):
    """Configuration of a feed-forward model: a window of embeddings and a hidden layer."""

    recipe: ClassVar[Mapping[str, Any]] = {"lr": 2e-3, "batch_size": 32, "seq_len": 64}

    context_size: int = setting(
        "Number of previous tokens that a prediction sees.", 8, ranges.WIDTHS
    )
    embedding_size: int = setting("Width of the embedding of a token.", 64, ranges.WIDTHS)
    hidden_size: int = shared(
        "hidden_size",
        256,
        " With 0 there is no hidden layer, and direct is needed.",
        bounds=Bounds(low=0, high=MOST_WIDTH),
    )
    direct: bool = setting("Also connect the embeddings directly to the softmax.")
    dropout: float = shared(
        "dropout", 0.0, " It applies to the embeddings and to the hidden layer."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.hidden_size > 0 or self.direct, "hidden_size=0 needs --set direct=true")
