"""Configurations of networks that read a whole text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.recurrent.settings import MOST_FILTERS, CellRegularisers, RecurrentConfig
from seqgen.models.shared_settings import shared
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.plugins.labels.masking import Symbols
from seqgen.plugins.labels.settings import SentenceConfig
from seqgen.settings import Size, ranges, require, setting

# The width of the vectors without n-grams, and with them, as in Joulin et al. (2017): each step
# updates all buckets.
WIDTH, WIDTH_OF_NGRAMS = 100, 10


@dataclass(frozen=True, kw_only=True)
class BagConfig(SentenceConfig):
    """Configuration of a bag of tokens, whose only layer is the token embedding."""

    recipe: ClassVar[Mapping[str, Any]] = {**SentenceConfig.recipe, "lr": 2e-2}

    embedding_size: int | None = setting(
        "Width of the vectors; by default 100, and 10 with n-grams (Joulin et al. 2017).",
        bounds=ranges.WIDTHS,
    )
    dropout: float = shared("dropout", 0.0)

    ngrams: int = setting(
        "Also read the n-grams of 2 to N tokens, hashed into `buckets` vectors (Joulin et "
        "al. 2017): word n-grams, or character n-grams with --tokenizer char. 1 reads none, and "
        "knows no order.",
        1,
        low=1,
        high=16,
    )
    buckets: int = setting("Number of vectors that n-grams share.", 1 << 16, ranges.TOKENS)
    within_words: bool = setting(
        "With --tokenizer char, n-grams lie within words, whose beginning and end each count as a "
        "character of them (Bojanowski et al. 2017); by default they cross white space."
    )

    def __post_init__(self) -> None:
        if self.embedding_size is None:
            width = WIDTH if self.ngrams == 1 else WIDTH_OF_NGRAMS
            object.__setattr__(self, "embedding_size", width)
        super().__post_init__()
        require(self.ngrams > 1 or not self.within_words, "within_words needs ngrams of 2 or more")

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return False  # looking vectors up takes longer than products with them


@dataclass(frozen=True, kw_only=True)
class BiRNNConfig(SentenceConfig, CellRegularisers):
    """Configuration of a bidirectional recurrent encoder."""

    cell: str = setting("Recurrent cell: lstm, gru or another (docs/architectures.md).", "lstm")
    directions: Literal["bidirectional", "forward", "reversed"] = setting(
        "Direction in which a sentence is read; each of two has half of the units.",
        "bidirectional",
    )
    hidden_size: int = shared("hidden_size", 256)
    num_layers: int = shared("num_layers", 1)
    embedding_size: int | None = setting(
        "Width of the embedding; by default the hidden size.", bounds=ranges.WIDTHS
    )
    features_at: Literal["input", "first"] = setting(
        "Where the features of another model (--features) enter: beside the embedding (input; "
        "Peters et al. 2018), or beside the first layer's output (first; Peters et al. 2017).",
        "input",
    )
    residual: bool = shared("residual", False)
    dropout: float = shared(
        "dropout", 0.2, " It applies to the input of each layer and of the head."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        even = self.directions != "bidirectional" or self.hidden_size % 2 == 0
        require(even, f"directions=bidirectional needs an even hidden_size, not {self.hidden_size}")
        adds = not self.residual or self.features_at == "input"
        require(adds, "residual adds up layers of one width: it needs features_at=input")

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return batch_size * self.hidden_size**2 >= RecurrentConfig.bf16_pays_from


@dataclass(frozen=True, kw_only=True)
class EncoderOnlyConfig(TransformerConfig):
    """Transformer configuration for bidirectional attention, without a causal mask."""

    sizes: ClassVar[tuple[Size, ...]] = (Size({}),)
    encoder_layers: ClassVar[None] = None
    source_features: ClassVar[None] = None
    sliding_window: ClassVar[None] = None
    full_layers: ClassVar[int] = 0
    full_every: ClassVar[None] = None
    nope_every: ClassVar[None] = None
    sliding_rope_theta: ClassVar[None] = None
    attention_softcap: ClassVar[None] = None
    logit_softcap: ClassVar[None] = None
    qk_norm_whole: ClassVar[bool] = False

    @property
    def source_window(self) -> int:
        """Number of positions."""
        return self.window


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(SentenceConfig, EncoderOnlyConfig):
    """Configuration of a bidirectional sentence encoder; its window includes the start symbol."""

    recipe: ClassVar[Mapping[str, Any]] = {**SentenceConfig.recipe, "lr": 1e-3}


@dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderOnlyConfig):
    """Configuration of BERT: a transformer with the extra symbols [CLS], [SEP] and [MASK].

    The window is how many tokens of text a row has; [CLS] and [SEP] come on top.
    """

    recipe: ClassVar[Mapping[str, Any]] = {
        "optimizer": "muon",
        "lr": 4e-3,
        "batch_size": 32,
        "seq_len": 64,
        "weight_decay": 0.01,
    }

    mask: float = setting(
        "Share of the tokens that each training step hides and the model predicts.",
        0.15,
        ranges.POSITIVE_SHARES,
    )
    next_sentence: bool = setting(
        "Also learn whether the second part of a row follows the first one in the text, or comes "
        "from somewhere else."
    )
    positions: Literal["rope", "learned", "sinusoidal"] = setting("Position encoding.", "learned")
    norm: Literal["rmsnorm", "layernorm"] = setting("Normalisation layer.", "layernorm")
    norm_position: Literal["pre", "post"] = setting(
        "Normalise before each sublayer (pre) or after its residual sum (post).", "post"
    )
    activation: Literal["swiglu", "gelu", "gelu-exact", "relu"] = setting(
        "Activation of the feed-forward layers; gelu is GPT-2's, by a tanh.", "gelu-exact"
    )
    qk_norm: bool = shared("qk_norm", False)
    bias: bool = setting("Give the linear layers biases.", True)
    tie_weights: bool = shared("tie_weights", True)
    norm_eps: float = setting(
        "Number added to the variance in normalisation.", 1e-12, ranges.SHARES
    )

    @property
    def source_window(self) -> int:
        return self.window + 2

    @property
    def symbols(self) -> Symbols:
        """The ids of [CLS], [SEP] and [MASK]."""
        return Symbols.after(self.vocab_size)


@dataclass(frozen=True, kw_only=True)
class ELMoConfig(LSTMConfig):
    """Configuration of both LSTMs of ELMo, whose layers all have the same width."""

    sizes: ClassVar[tuple[Size, ...]] = (Size({}),)
    recipe: ClassVar[Mapping[str, Any]] = {**LSTMConfig.recipe, "batch_size": 64}

    hidden_size: int = shared("hidden_size", 128, search=None)
    num_layers: int = shared("num_layers", 2)
    input: Literal["embedding", "onehot", "char-cnn"] = setting(
        "Input of the first layer: a convolution over the characters of words (char-cnn; Kim et "
        "al. 2016) with a linear map to the width of the layers, or learned embeddings.",
        "char-cnn",
    )
    char_filters: int = setting(
        "For input=char-cnn: number of filters over one character; there are w times as many of "
        "width w, but at most 200.",
        10,
        low=1,
        high=MOST_FILTERS,
    )
    residual: bool = shared("residual", True)

    @classmethod
    def sizes_for(cls, vocab_size: int, given: Collection[str]) -> tuple[Size, ...]:
        return cls.sizes  # a narrow embedding does not go with the sum of the layers

    def __post_init__(self) -> None:
        if self.embedding_size is None:
            object.__setattr__(self, "embedding_size", self.projection or self.hidden_size)
        super().__post_init__()
        width = self.output_size
        wide = self.embedding_size == width and self.last_size in (None, width)
        require(wide, f"elmo adds up its layers: embedding_size and last_size must be {width}")
        require(self.input != "onehot", "elmo has no input=onehot: give embedding or char-cnn")
        require(not self.pointer, "elmo has no pointer: leave it out")
