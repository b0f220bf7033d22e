"""Settings of encoder-decoders, recurrent and transformer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqgen.engines.parts import Linear, Piece, Table
from seqgen.models.recurrent.settings import CellRegularisers, RecurrentConfig
from seqgen.models.shared_settings import shared
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.settings import ModelConfig, OptionRule, Size, look_up_ratio, ranges, require, setting
from seqgen.settings.setting import MOST_TOKENS

# Dropout by the overfitting ratio, as for models of text: where targets are sentences, and where
# they are spelled out, in characters or bytes.
DROPOUT = {
    False: ((30, 0.1), (70, 0.2), (1000, 0.3), (math.inf, 0.4)),
    True: ((200, 0.0), (1000, 0.1), (5000, 0.2), (math.inf, 0.3)),
}


@dataclass(frozen=True, kw_only=True)
class SourceConfig(ModelConfig):
    """Settings that all encoder-decoders share: source vocabulary and embeddings.

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
        """Choose dropout and label smoothing by the overfitting ratio.

        A sentence has several good translations, so that certainty is discouraged too; a string
        that is spelled out, such as a date, has one.
        """
        return {
            "dropout": look_up_ratio(DROPOUT[spelled], overfitting_ratio),
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
        """Whether source and target share one vocabulary."""
        return self.source_vocab_size is None and self.source_features is None

    @property
    def shares_embeddings(self) -> bool:
        """Whether source and target share one embedding matrix."""
        return self.joint if self.share_embeddings is None else self.share_embeddings

    def shared_weights(self) -> list[list[str]]:
        names = ["embedding.weight"] + ["head.weight"] * self.tie_weights
        names += ["encoder.inputs.weight"] * self.shares_embeddings
        return [names] if len(names) > 1 else []

    def source_inputs(self, width: int) -> Piece:
        """Create the input layer of sources: an embedding, or a linear map of vectors."""
        if self.source_features is not None:
            return Linear(self.source_features, width)
        return Table(self.source_vocab_size or self.vocab_size, width)


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(CellRegularisers, SourceConfig):
    """Configuration of a recurrent encoder-decoder."""

    recipe: ClassVar[Mapping[str, Any]] = {**SourceConfig.recipe, "lr": 1e-2}
    sizes: ClassVar[tuple[Size, ...]] = (
        Size(
            {"hidden_size": 512, "embedding_size": 256, "tie_weights": False}, tokens=2e7, text=3e5
        ),
        Size({"hidden_size": 256, "embedding_size": 256, "tie_weights": True}, tokens=2e5),
        Size({"hidden_size": 128, "embedding_size": 128, "tie_weights": False}, tokens=6e4),
        Size({"hidden_size": 64, "embedding_size": 64, "tie_weights": False}),
    )

    cell: str = setting("Recurrent cell: gru, lstm or another (docs/architectures.md).", "gru")
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
        conflicts=OptionRule(("attention=none",), "decoder=bahdanau needs attention"),
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
        "Let attention scores depend on the attention paid so far (Tu et al. 2016).",
        needs="attention=additive",
    )
    residual: bool = shared("residual", False)
    dropout: float = shared(
        "dropout", 0.2, " It applies to the input of each layer and of the softmax layer."
    )
    tie_weights: bool = setting(
        "Share the target's embedding matrix with the softmax layer.",
        conflicts=OptionRule(("readout=concat",), "tie_weights needs readout=tanh or maxout"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        even = self.encoder != "bidirectional" or self.hidden_size % 2 == 0
        require(even, f"encoder=bidirectional needs an even hidden_size, not {self.hidden_size}")
        equal_widths = self.input_size == self.hidden_size
        require(
            equal_widths or not self.tie_weights,
            "tie_weights needs embedding_size equal to hidden_size",
        )
        require(
            equal_widths or self.encoder != "none",
            "encoder=none needs embedding_size equal to hidden_size",
        )
        dots = self.attention == "dot" and self.query == "word"
        require(
            equal_widths or not dots,
            "attention=dot with query=word needs embedding_size equal to hidden_size",
        )
        linked = self.attention != "none" or self.bridge != "none"
        require(linked, "with attention=none and bridge=none the source would not be read")

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return batch_size * self.hidden_size**2 >= RecurrentConfig.bf16_pays_from

    @property
    def input_size(self) -> int:
        """Width E of the embeddings."""
        return self.embedding_size or self.hidden_size


@dataclass(frozen=True, kw_only=True)
class Seq2SeqTransformerConfig(SourceConfig, TransformerConfig):
    """Configuration of an encoder-decoder transformer.

    The settings are the decoder-only transformer's, for both sides; so are the defaults, and
    what makes the form of 2017.
    """

    derived: ClassVar[frozenset[str]] = (
        SourceConfig.derived | TransformerConfig.derived | {"source_window", "decoder_start"}
    )
    recipe: ClassVar[Mapping[str, Any]] = SourceConfig.recipe
    sizes: ClassVar[tuple[Size, ...]] = (
        Size({"num_layers": 3, "hidden_size": 256, "tie_weights": True}, tokens=1.5e6, text=3e5),
        Size({"num_layers": 2, "hidden_size": 128, "tie_weights": True}, tokens=1e5),
        Size({"num_layers": 2, "hidden_size": 64, "tie_weights": True}),
    )

    sliding_window: ClassVar[None] = None
    full_layers: ClassVar[int] = 0
    full_every: ClassVar[None] = None
    nope_every: ClassVar[None] = None
    sliding_rope_theta: ClassVar[None] = None
    attention_softcap: ClassVar[None] = None
    logit_softcap: ClassVar[None] = None
    qk_norm_whole: ClassVar[bool] = False

    encoder_layers: int | None = setting(
        "Number of encoder blocks; by default as many as num_layers.", bounds=ranges.LAYERS
    )
    source_window: int = setting(
        "Longest source in tokens, EOS included; it follows from max_source_len.",
        513,
        ranges.TOKENS,
    )
    decoder_start: int | None = setting(
        "Token that the decoder reads before the start of a text, as BART's does; for imported"
        " models.",
        low=0,
        high=MOST_TOKENS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.decoder_start is None or self.decoder_start < self.vocab_size
        require(known, f"decoder_start is token {self.decoder_start} of {self.vocab_size}")
