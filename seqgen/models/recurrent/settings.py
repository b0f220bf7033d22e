"""Settings shared by all recurrent language models."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from seqgen import hooks, registry
from seqgen.errors import UsageError, did_you_mean
from seqgen.models.recurrent.cells.equation import Equation
from seqgen.models.shared_settings import shared
from seqgen.settings import MOST_LAYERS, MOST_WIDTH, ModelConfig, Size, ranges, require, setting
from seqgen.settings.setting import OptionRule


@dataclass(frozen=True, kw_only=True)
class CellRegularisers(ModelConfig):
    """Settings that regularise recurrent layers: dropout, zoneout, normalisation."""

    variational: bool = setting(
        "Drop with one mask for all time steps of a row, instead of one a step (Gal and Ghahramani "
        "2016): in dropout, input_dropout, output_dropout and update_dropout.",
        False,
    )
    state_dropout: float = setting(
        "Probability of dropping each unit that the recurrent matrices read, with one mask for all "
        "time steps (Gal and Ghahramani 2016).",
        0.0,
        ranges.SHARES_BELOW_1,
    )
    update_dropout: float = setting(
        "Probability of dropping each unit of a step's update, what a gated cell adds to its past "
        "(Semeniuta et al. 2016).",
        0.0,
        ranges.SHARES_BELOW_1,
    )
    zoneout: float = setting(
        "Probability that a unit of the output keeps the value it had before the step (Krueger et "
        "al. 2017).",
        0.0,
        ranges.SHARES_BELOW_1,
    )
    zoneout_memory: float = setting(
        "The same for the other parts of a cell's state, such as the LSTM's memory.",
        0.0,
        ranges.SHARES_BELOW_1,
    )
    weight_drop: float = setting(
        "Probability of dropping each weight of the recurrent matrices, with one mask a training "
        "call (Merity et al. 2018).",
        0.0,
        ranges.SHARES_BELOW_1,
    )
    activation_penalty: float = setting(
        "Penalty alpha on the features that the softmax layer reads: alpha times the mean of their "
        "squares (Merity et al. 2017, as in their code; the paper has norms). It affects only the "
        "gradient.",
        0.0,
        ranges.WEIGHTS,
    )
    temporal_penalty: float = setting(
        "Penalty beta on how much the features change from step to step: beta times the mean "
        "square of the difference (as in activation_penalty). It affects only the gradient.",
        0.0,
        ranges.WEIGHTS,
    )

    @property
    def dropout_shares(self) -> Literal["nothing", "time"]:
        """Dimension along which dropout masks are shared; see `Dropout`."""
        return "time" if self.variational else "nothing"


# Filters of one width over characters: as many as Kim et al. (2016) have at most.
MOST_FILTERS = 200
CELL_REGULARISERS = tuple(CellRegularisers.fields())


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(CellRegularisers):
    """Configuration of recurrent layers between an embedding and a softmax."""

    recipe: ClassVar[Mapping[str, Any]] = {
        "optimizer": "muon",
        "lr": 1e-2,
        "batch_size": 32,
        "seq_len": 64,
        "weight_decay": 0.05,
    }

    # Up to 2 x 384 found by runs of 9 seconds to 5 minutes on tiny Shakespeare, and of 20 minutes
    # on WikiText-2 (docs/evidence/experiments.md). From there on an LSTM trains on four tokens for
    # each of its parameters, and reads two of text, as 2 x 384 does.
    sizes: ClassVar[tuple[Size, ...]] = (
        Size({"num_layers": 3, "hidden_size": 512}, tokens=2.5e7, text=1.3e7),
        Size({"num_layers": 2, "hidden_size": 512}, tokens=1.7e7, text=8.5e6),
        Size({"num_layers": 2, "hidden_size": 384}, tokens=1e7, text=5e6),
        Size({"num_layers": 2, "hidden_size": 256}, tokens=1.6e6, text=1.5e5),
        Size({"num_layers": 2, "hidden_size": 192}, tokens=1.6e6, text=1.5e5),
        Size({"num_layers": 2, "hidden_size": 128}, tokens=1.6e6),
        Size({"num_layers": 1, "hidden_size": 128}),
    )

    # An embedding that is wider than its vocabulary says nothing more, and the first layer's input
    # product is a quarter of the work of two layers (docs/evidence/experiments.md).
    narrow_up_to: ClassVar[int] = 512
    """Largest vocabulary, such as characters or bytes, that gets a narrow embedding."""
    narrow_embedding: ClassVar[int] = 64
    """Width of a narrow embedding, if a budget in minutes determines the layers' width."""

    bf16_pays_from: ClassVar[int] = 1 << 20
    """Multiplications per gate and time step from which bf16 is faster (measured)."""

    equation: ClassVar[type[Equation]]
    """Equation of a layer: the computation of one time step."""

    hidden_size: int = shared("hidden_size", 256)
    num_layers: int = shared("num_layers", 2)
    input: Literal["embedding", "onehot", "char-cnn"] = setting(
        "Input of the first layer: learned embeddings, one-hot vectors, or for words a convolution "
        "over their characters (Kim et al. 2016).",
        "embedding",
    )
    char_size: int = setting(
        "For input=char-cnn: width of the vector of a character.", 15, ranges.WIDTHS
    )
    char_filters: int = setting(
        "For input=char-cnn: number of filters over one character; there are w times as many of "
        "width w, but at most 200.",
        25,
        low=1,
        high=MOST_FILTERS,
    )
    char_widths: int = setting(
        "For input=char-cnn: width of the widest filters, in characters; there are filters of "
        "every width from 1.",
        6,
        low=1,
        high=100,
    )
    char_length: int = setting(
        "For input=char-cnn: characters of a word that are read, its two ends included; in UTF-8, "
        "some take several.",
        24,
        low=2,
        high=1000,
    )
    char_highways: int = setting(
        "For input=char-cnn: number of highway layers.", 1, low=0, high=MOST_LAYERS
    )
    embedding_size: int | None = setting(
        "Width of the embedding; by default the hidden size. With input=char-cnn a linear map from "
        "the highway layers to this width; by default there is none.",
        None,
        ranges.WIDTHS,
    )
    residual: bool = shared("residual", False)
    dense: bool = setting(
        "Let each layer read the first layer's input and the outputs of all layers below it, side"
        " by side (dense connections, Huang et al. 2017); the softmax layer reads the last layer.",
        False,
        needs=OptionRule(("residual=false",), "dense=true needs residual=false, and vice versa"),
    )
    dropout: float = shared(
        "dropout",
        0.1,
        " It applies to the input of each layer and of the softmax layer (Zaremba et al. 2014).",
    )
    tie_weights: bool = shared("tie_weights", False)
    last_size: int | None = setting(
        "Width of the last layer, in units; by default the hidden size.", None, ranges.WIDTHS
    )
    input_dropout: float | None = setting(
        "The dropout of the first layer's input, where it is not to be `dropout`.",
        None,
        ranges.SHARES_BELOW_1,
    )
    output_dropout: float | None = setting(
        "The dropout of the softmax layer's input, where it is not to be `dropout`.",
        None,
        ranges.SHARES_BELOW_1,
    )
    word_dropout: float = setting(
        "Probability of dropping a token's whole input vector everywhere in the batch "
        "(Gal and Ghahramani 2016; Merity et al. 2018).",
        0.0,
        ranges.SHARES_BELOW_1,
    )
    batch_norm: bool = setting(
        "Normalise over the batch and time (Ioffe and Szegedy 2015) what batch_norm_at says; "
        "evaluation uses running means and variances.",
        False,
    )
    batch_norm_at: Literal["output", "input"] = setting(
        "For batch_norm: each layer's output before it is read (output), or the product of its "
        "input, W_h h + BN(W_x x) (input; Laurent et al. 2016).",
        "output",
        needs=OptionRule(("batch_norm=true",), "batch_norm_at=input needs batch_norm=true"),
    )
    pointer: int = setting(
        "Number of recent tokens that a learned pointer can copy from, mixed with the softmax by "
        "a sentinel (Merity et al. 2017); 0 for no pointer.",
        0,
        low=0,
        high=MOST_WIDTH,
    )

    @property
    def norms(self) -> Literal["output", "input"] | None:
        """Place of batch normalisation in each layer; None without it."""
        return self.batch_norm_at if self.batch_norm else None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.one_width or not self.residual,
            "residual needs layers of one width, without last_size",
        )
        if self.tie_weights:
            require(self.input == "embedding", "tie_weights needs --set input=embedding")
            size = self.last.output_size
            equal_widths = self.input_size == size
            require(equal_widths, f"tie_weights needs embedding_size={size}, the head's width")

        if self.input == "char-cnn":
            fits = self.char_widths <= self.char_length
            require(fits, "char_widths must be at most char_length")

    @classmethod
    def sizes_for(cls, vocab_size: int, given: Collection[str]) -> tuple[Size, ...]:
        # These decide about the embedding themselves.
        decided = not {"hidden_size", "embedding_size", "tie_weights", "input"}.isdisjoint(given)
        if decided or vocab_size > cls.narrow_up_to:
            return cls.sizes
        narrow = {"embedding_size": cls.narrow_embedding}
        return tuple(replace(size, settings={**size.settings, **narrow}) for size in cls.sizes)

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        return batch_size * self.hidden_size**2 >= self.bf16_pays_from

    def equations(self) -> list[Equation]:
        """Create the equation of each layer."""
        equations: list[Equation] = []
        read = [self.input_size]
        for layer in [self] * (self.num_layers - 1) + [self.last]:
            equations.append(layer.equation(sum(read), layer))
            size = equations[-1].sizes[0]
            read = [*read, size] if self.dense else [size]
        return equations

    def shared_weights(self) -> list[list[str]]:
        """List the groups of parameter names that share one weight."""
        names: dict[str, list[str]] = {"weight": [], "bias": []}  # in the order of a state_dict
        if self.tie_weights:
            names["weight"].append("embedding.weight")
        for own, name in self.equation.of_head.items():
            names[name] += [f"layers.{i}.{own}" for i in range(self.num_layers)]
        return [[*shared, f"head.{name}"] for name, shared in names.items()]

    @property
    def output_size(self) -> int:
        """Width of a layer's output."""
        return self.hidden_size

    @property
    def one_width(self) -> bool:
        """Whether all layers have the same width."""
        return self.num_layers == 1 or self.last_size in (None, self.hidden_size)

    @property
    def last(self) -> RecurrentConfig:
        """Configuration of the last layer, whose output the head reads."""
        if self.last_size is None:
            return self
        return replace(self, hidden_size=self.last_size, last_size=None, tie_weights=False)

    @property
    def filters(self) -> list[int]:
        """Number of character filters of width 1, 2, ..."""
        widths = range(1, self.char_widths + 1)
        return [min(MOST_FILTERS, self.char_filters * width) for width in widths]

    @property
    def input_size(self) -> int:
        """Width of the first layer's input."""
        if self.input == "onehot":
            return self.vocab_size
        if self.input == "char-cnn":
            return self.embedding_size or sum(self.filters)
        return self.embedding_size or self.hidden_size


def recurrent_cell(config: CellRegularisers) -> RecurrentConfig:
    """Build the configuration of the cell that `config.cell` names.

    Args:
        config: with `cell`, and the size of the cells as recurrent language models name it.

    Raises:
        UsageError: no recurrent architecture has that name, or its plugin is missing.
    """
    kind = registry.ARCHITECTURES.get(config.cell)
    hooks.require_plugin(config.cell)
    if kind is None or not kind.is_cell:
        known = [name for name, row in registry.ARCHITECTURES.items() if row.is_cell]
        hint = did_you_mean(config.cell, known) if kind is None else ""
        raise UsageError(
            f"cell is a recurrent architecture ({', '.join(known)}), not {config.cell}{hint}"
        )
    names = "hidden_size", "num_layers", "residual", "dropout", "vocab_size", *CELL_REGULARISERS
    cell = kind.load_config()(**{name: getattr(config, name) for name in names})
    cell.equation.require_suits(cell)
    return cell
