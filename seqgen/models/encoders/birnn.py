"""A bidirectional recurrent encoder of sentences, of any cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from seqgen.configs import SHARED_SEARCH, ranges, require, setting
from seqgen.configs.model import SentenceConfig
from seqgen.models.encoders.sentence_encoder import SentenceEncoder, at_ends
from seqgen.models.network import groups_in_order
from seqgen.models.recurrent.config import CellRegularisers, RecurrentConfig
from seqgen.models.recurrent.named_cell import recurrent_cell
from seqgen.models.seq2seq.encoders import RecurrentEncoder
from seqgen.models.seq2seq.recurrent_config import DIRECTIONS
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
        SHARED_DOCS["hidden_size"], 256, ranges.WIDTHS, search=SHARED_SEARCH["hidden_size"]
    )
    num_layers: int = setting(SHARED_DOCS["num_layers"], 1, ranges.LAYERS)
    embedding_size: int | None = setting(
        "Width of the embedding; by default the hidden size.", None, ranges.WIDTHS
    )
    features_at: Literal["input", "first"] = setting(
        "Where the features of another model (--features) enter: beside the embedding (input; "
        "Peters et al. 2018), or beside the first layer's output (first; Peters et al. 2017).",
        "input",
    )
    residual: bool = setting(
        "Add the input of each layer but the first to its output (residual connections).", False
    )
    dropout: float = setting(
        SHARED_DOCS["dropout"] + " It applies to the input of each layer and of the head.",
        0.2,
        ranges.SHARES_BELOW_1,
        search=SHARED_SEARCH["dropout"],
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        even = self.directions != "bidirectional" or self.hidden_size % 2 == 0
        require(even, f"directions=bidirectional needs an even hidden_size, not {self.hidden_size}")
        adds = not self.residual or self.features_at == "input"
        require(adds, "residual adds up layers of one width: it needs features_at=input")

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return batch_size * self.hidden_size**2 >= RecurrentConfig.bf16_pays_from


class BiRNN(SentenceEncoder):
    """The registry's `birnn`: in every layer [h->; h<-] (Schuster and Paliwal 1997).

    The last state of a sentence is that of the forward layer at its end beside that of the
    backward layer at its beginning.

    With features_at=first, the last `beside` numbers of each vector that it reads in the place of
    a token are h_LM, the features of a language model, and the second layer or the head reads
    [h->_k,1; h<-_k,1; h_LM,k] (Peters et al. 2017, section 2.4).
    """

    def __init__(self, config: BiRNNConfig, width: int | None = None) -> None:
        super().__init__()
        cell = recurrent_cell(config)
        directions = DIRECTIONS[config.directions]
        cell = replace(cell, hidden_size=config.hidden_size // len(directions))
        size, inputs = config.embedding_size or config.hidden_size, nn.Identity()
        if width is None:
            require(config.features_at == "input", "features_at=first needs --features")
            width, inputs = size, nn.Embedding(config.vocab_size, size)
        self.beside = width - size if config.features_at == "first" else 0
        read = width - self.beside
        self.encoder = RecurrentEncoder(inputs, read, cell, directions, self.beside)
        self.size = self.encoder.size

    @property
    def embedding(self) -> nn.Module:
        """The encoder's."""
        return self.encoder.inputs

    def forward(self, values: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        beside = None
        if self.beside:
            values, beside = values.tensor_split([-self.beside], -1)
        features, final = self.encoder(values, lengths, beside)
        last = final[-1][0]
        if last.shape[1] < self.size:  # one layer, whose output has the features beside it
            last = torch.cat([last, at_ends(beside, lengths)], -1)
        return features, last

    def layers_in_order(self) -> list[list[nn.Module]]:
        return groups_in_order(self.encoder)
