"""The settings that all recurrent language models share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqgen.configs import MOST_LAYERS, MOST_WIDTH, ModelConfig, Size, require, setting
from seqgen.registry import SHARED_DOCS


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ModelConfig):
    """A stack of recurrent layers between an embedding and a softmax."""

    recipe: ClassVar[Mapping[str, Any]] = {
        "optimizer": "muon",
        "lr": 1e-2,
        "batch_size": 32,
        "seq_len": 64,
        "weight_decay": 0.05,
    }

    # Found by runs of 9 seconds to 5 minutes on tiny Shakespeare (docs/recipes.md).
    sizes: ClassVar[tuple[Size, ...]] = (
        Size({"num_layers": 2, "hidden_size": 256}, tokens=1.6e6, text=1.5e5),
        Size({"num_layers": 2, "hidden_size": 192}, tokens=1.6e6, text=1.5e5),
        Size({"num_layers": 2, "hidden_size": 128}, tokens=1.6e6),
        Size({"num_layers": 1, "hidden_size": 128}),
    )

    bf16_pays_from: ClassVar[int] = 1 << 20
    """The multiplications of a gate, a time step, from which bf16 is faster (measured)."""

    hidden_size: int = setting(SHARED_DOCS["hidden_size"], 256, low=1, high=MOST_WIDTH)
    num_layers: int = setting(SHARED_DOCS["num_layers"], 2, low=1, high=MOST_LAYERS)
    input: Literal["embedding", "onehot"] = setting(
        "Input of the first layer: learned embeddings, or one-hot vectors.", "embedding"
    )
    embedding_size: int | None = setting(
        "Width of the embedding; by default the hidden size.", None, low=1, high=MOST_WIDTH
    )
    residual: bool = setting(
        "Add the input of each layer but the first to its output (residual connections).", False
    )
    dropout: float = setting(
        SHARED_DOCS["dropout"]
        + " It applies to the input of each layer and of the softmax layer (Zaremba et al. "
        "2014).",
        0.1,
        low=0,
        below=1,
    )
    tie_weights: bool = setting(
        "Share the embedding matrix with the softmax layer (Press and Wolf 2017).", False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie_weights:
            require(self.input == "embedding", "tie_weights needs --set input=embedding")
            same = self.input_size == self.output_size
            require(same, f"tie_weights needs embedding_size={self.output_size}, the head's width")

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return batch_size * self.hidden_size**2 >= self.bf16_pays_from

    @property
    def output_size(self) -> int:
        """Width of each layer's output, and of what the head reads."""
        return self.hidden_size

    @property
    def input_size(self) -> int:
        """Width of the first layer's input."""
        if self.input == "onehot":
            return self.vocab_size
        return self.embedding_size or self.hidden_size
