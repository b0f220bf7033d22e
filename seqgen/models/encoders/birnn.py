"""A bidirectional recurrent encoder of sentences, of any cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, nn

from seqgen.configs import MOST_LAYERS, MOST_WIDTH, SHARED_SEARCH, require, setting
from seqgen.configs.labelling import SentenceConfig
from seqgen.models.encoders.sentence_encoder import SentenceEncoder
from seqgen.models.network import groups_in_order
from seqgen.models.recurrent.config import CellRegularisers, RecurrentConfig
from seqgen.models.recurrent.named_cell import recurrent_cell
from seqgen.models.seq2seq.encoders import DIRECTIONS, RecurrentEncoder
from seqgen.registry import SHARED_DOCS


@dataclass(frozen=True, kw_only=True)
class BiRNNConfig(SentenceConfig, CellRegularisers):
    """Recurrent layers that read a sentence from both ends."""

    cell: str = setting("Recurrent cell: lstm, gru or another (docs/cells.md).", "lstm")
    directions: Literal["bidirectional", "forward", "reversed"] = setting(
        "Direction in which a sentence is read; each of two has half of the units.",
        "bidirectional",
    )
    hidden_size: int = setting(
        SHARED_DOCS["hidden_size"], 256, low=1, high=MOST_WIDTH, search=SHARED_SEARCH["hidden_size"]
    )
    num_layers: int = setting(SHARED_DOCS["num_layers"], 1, low=1, high=MOST_LAYERS)
    embedding_size: int | None = setting(
        "Width of the embedding; by default the hidden size.", None, low=1, high=MOST_WIDTH
    )
    residual: bool = setting(
        "Add the input of each layer but the first to its output (residual connections).", False
    )
    dropout: float = setting(
        SHARED_DOCS["dropout"] + " It applies to the input of each layer and of the head.",
        0.2,
        low=0,
        below=1,
        search=SHARED_SEARCH["dropout"],
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        even = self.directions != "bidirectional" or self.hidden_size % 2 == 0
        require(even, f"directions=bidirectional needs an even hidden_size, not {self.hidden_size}")

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return batch_size * self.hidden_size**2 >= RecurrentConfig.bf16_pays_from


class BiRNN(SentenceEncoder):
    """The registry's `birnn`: in every layer [h->; h<-] (Schuster and Paliwal 1997).

    The last state of a sentence is that of the forward layer at its end beside that of the
    backward layer at its beginning.
    """

    def __init__(self, config: BiRNNConfig, width: int | None = None) -> None:
        super().__init__()
        layer, cell = recurrent_cell(config)
        directions = DIRECTIONS[config.directions]
        cell = replace(cell, hidden_size=config.hidden_size // len(directions))
        inputs: nn.Module = nn.Identity()
        if width is None:
            width = config.embedding_size or config.hidden_size
            inputs = nn.Embedding(config.vocab_size, width)
        self.encoder = RecurrentEncoder(inputs, width, layer, cell, directions)
        self.size = self.encoder.size

    @property
    def embedding(self) -> nn.Module:
        """The encoder's."""
        return self.encoder.inputs

    def forward(self, values: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        features, final = self.encoder(values, lengths)
        return features, final[-1][0]

    def layers_in_order(self) -> list[list[nn.Module]]:
        return groups_in_order(self.encoder)
