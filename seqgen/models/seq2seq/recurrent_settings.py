"""The settings of recurrent encoder-decoders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from seqgen.models.recurrent.equation import Equation
from seqgen.models.recurrent.settings import CellRegularisers, RecurrentConfig, recurrent_cell
from seqgen.models.seq2seq.settings import SourceConfig
from seqgen.models.shared_settings import shared
from seqgen.settings import Size, ranges, require, setting


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(CellRegularisers, SourceConfig):
    """Recurrent layers over the source, and recurrent layers over the target that begin there."""

    recipe: ClassVar[Mapping[str, Any]] = {**SourceConfig.recipe, "lr": 1e-2}
    sizes: ClassVar[tuple[Size, ...]] = (
        Size(
            {"hidden_size": 512, "embedding_size": 256, "tie_weights": False}, tokens=2e7, text=3e5
        ),
        Size({"hidden_size": 256, "embedding_size": 256, "tie_weights": True}),
    )

    cell: str = setting("Recurrent cell: gru, lstm or another (docs/cells.md).", "gru")
    hidden_size: int = shared("hidden_size", 256, " Encoder and decoder have the same.")
    num_layers: int = shared("num_layers", 1, " Encoder and decoder have the same.")
    embedding_size: int | None = setting(
        "Width of the embeddings; by default the hidden size.", bounds=ranges.WIDTHS
    )
    encoder: Literal["bidirectional", "forward", "reversed", "none"] = setting(
        "Direction in which the source is read; none reads each token on its own.",
        "bidirectional",
    )
    bridge: Literal["first", "input", "each", "none"] = setting(
        "What the encoder's last state is used for: it starts the decoder (first), is its first "
        "input (input), starts it and enters every prediction (each), or nothing (none).",
        "first",
    )
    attention: Literal["none", "dot", "general", "additive"] = setting(
        "How attention over the source is scored (Luong et al. 2015; Bahdanau et al. 2015).",
        "additive",
    )
    query: Literal["state", "word"] = setting(
        "What queries the source: the decoder's state, or the embedding of the previous token.",
        "state",
    )
    decoder: Literal["luong", "bahdanau"] = setting(
        "Order of a decoder's step: the cell, then attention by the state after it (luong; Luong "
        "et al. 2015), or attention by the state before it, whose result enters the cell beside "
        "the embedding (bahdanau; Bahdanau et al. 2015), one token at a time.",
        "luong",
    )
    readout: Literal["tanh", "concat", "maxout"] = setting(
        "What the softmax layer reads of state s and attended source a: tanh(W [s; a]) (tanh; "
        "Luong et al. 2015), [s; a] itself (concat), or the larger of each two elements of "
        "W [s; a; y], y the embedding of the previous token (maxout; Bahdanau et al. 2015).",
        "tanh",
    )
    scaled: bool = setting("Divide attention scores by the square root of the hidden size.")
    input_feeding: bool = setting(
        "Feed each step what the softmax layer read in the previous one (Luong et al. 2015)."
    )
    coverage: bool = setting(
        "Let attention scores depend on the attention paid so far (Tu et al. 2016)."
    )
    residual: bool = shared("residual", False)
    dropout: float = shared(
        "dropout", 0.2, " It applies to the input of each layer and of the softmax layer."
    )
    tie_weights: bool = setting("Share the target's embedding matrix with the softmax layer.")

    def __post_init__(self) -> None:
        super().__post_init__()
        even = self.encoder != "bidirectional" or self.hidden_size % 2 == 0
        require(even, f"encoder=bidirectional needs an even hidden_size, not {self.hidden_size}")
        equal_widths = self.input_size == self.hidden_size
        require(
            equal_widths or not self.tie_weights,
            "tie_weights needs embedding_size equal to hidden_size",
        )
        narrow = self.readout != "concat" or not self.tie_weights
        require(narrow, "tie_weights needs readout=tanh or maxout")
        require(
            equal_widths or self.encoder != "none",
            "encoder=none needs embedding_size equal to hidden_size",
        )
        dots = self.attention == "dot" and self.query == "word"
        require(
            equal_widths or not dots,
            "attention=dot with query=word needs embedding_size equal to hidden_size",
        )
        covers = not self.coverage or self.attention == "additive"
        require(covers, "coverage needs attention=additive")
        asks = self.decoder == "luong" or self.attention != "none"
        require(asks, "decoder=bahdanau needs attention")
        linked = self.attention != "none" or self.bridge != "none"
        require(linked, "with attention=none and bridge=none the source would not be read")

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return batch_size * self.hidden_size**2 >= RecurrentConfig.bf16_pays_from

    @property
    def input_size(self) -> int:
        """Width E of the embeddings."""
        return self.embedding_size or self.hidden_size


# Which ways each kind of encoder reads: False from the left, True from the right.
DIRECTIONS = {"forward": (False,), "reversed": (True,), "bidirectional": (False, True)}
Widths = list[tuple[int, ...]]


class Layout:
    """How wide the parts of a model are.

    Args:
        config: of the model.

    Attributes:
        cell: the configuration of the decoder's cells.
        decoder: the equation of each layer of the decoder.
        encoder: for each layer of the encoder the equations of its directions; none without one.
        source_size: the width of what the encoder makes of each place.
        query_size: the width of what asks for places.
        joined: the width of what the features are made of, but for the word.
        feature_size: the width of what the head reads.
    """

    def __init__(self, config: Seq2SeqConfig) -> None:
        self.config, self.cell, self.encoder = config, recurrent_cell(config), []
        size = self.cell.equation.widths(self.cell)[0]
        self.source_size = config.input_size
        if config.encoder != "none":
            self.encoder = stacked(self.source_cell, config.input_size, len(self.directions))
            self.source_size = sum(one.sizes[0] for one in self.encoder[-1])
        self.joined = size + self.source_size * (config.attention != "none")
        self.joined += size * (config.bridge == "each")
        self.feature_size = self.joined if config.readout == "concat" else config.hidden_size
        beside = self.feature_size * config.input_feeding
        beside += self.source_size * (config.decoder == "bahdanau")
        self.decoder = [one for (one,) in stacked(self.cell, config.input_size + beside)]
        self.query_size = size if config.query == "state" else config.input_size

    @property
    def directions(self) -> tuple[bool, ...]:
        """Which ways the encoder reads."""
        return DIRECTIONS[self.config.encoder]

    @cached_property
    def source_cell(self) -> RecurrentConfig:
        """The configuration of the encoder's cells, in the size of one direction."""
        return replace(self.cell, hidden_size=self.config.hidden_size // len(self.directions))

    @property
    def begins(self) -> Widths:
        """For each layer of the decoder, how wide its parts are."""
        return [one.sizes for one in self.decoder]

    @property
    def bridge(self) -> list[list[tuple[int, int]]]:
        """For each layer that begins with an end of the encoder, how wide both are, by part."""
        if self.config.bridge == "none":
            return []
        ends = [(self.source_size,) * len(parts) for parts in self.begins]
        if self.encoder:
            ends = [
                tuple(map(sum, zip(*(one.sizes for one in x), strict=True))) for x in self.encoder
            ]
        if self.config.bridge == "input":
            return [[(ends[-1][0], self.config.input_size)]]
        return [[*zip(*pair, strict=True)] for pair in zip(ends, self.begins, strict=True)]

    @property
    def combined(self) -> tuple[int, int] | None:
        """Of the map that makes features, how many numbers go in and out; None without one."""
        if self.config.readout == "maxout":
            return self.joined + self.config.input_size, 2 * self.feature_size
        return (self.joined, self.feature_size) if self.joined != self.feature_size else None


def stacked(
    cell: RecurrentConfig, size: int, copies: int = 1, beside: int = 0
) -> list[list[Equation]]:
    """Return the equations of a stack of layers, each of several cells side by side.

    Args:
        cell: of each.
        size: the width of what the first layer reads.
        copies: cells in a layer.
        beside: width of the vectors that are joined to the first layer's output.
    """
    layers = []
    for _ in range(cell.num_layers):
        layers.append([cell.equation(size, cell) for _ in range(copies)])
        size = sum(one.sizes[0] for one in layers[-1]) + beside
        beside = 0
    return layers
