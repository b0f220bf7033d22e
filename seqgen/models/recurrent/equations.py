"""Stack of recurrent layers between an embedding and a softmax, over arrays or tensors."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqgen import hooks
from seqgen.engines.ops import Leaf, Ops
from seqgen.engines.parts import (
    DropoutPiece,
    Linear,
    NestedPart,
    Piece,
    Pieces,
    Stack,
    Table,
    glorot,
)
from seqgen.engines.weights import Shapes, Weights
from seqgen.models.inference import HiddenStateModel
from seqgen.models.memory.pointer import Pointer
from seqgen.models.memory.recent import RecentPositions
from seqgen.models.recurrent.array_layer import ArrayLayer
from seqgen.models.recurrent.cells.equation import Equation, Parts, scale_and_shift
from seqgen.models.state import State

if TYPE_CHECKING:
    from seqgen.models.recurrent.settings import RecurrentConfig


@dataclass
class RecurrentState(State):
    """State of a recurrent language model: cell states, and the pointer's recent positions.

    Attributes:
        layers: for each layer, the parts that its cell hands on, (B, H) unless it says otherwise.
        recent: the last positions; None in a model without a pointer.
    """

    layers: tuple[tuple[Leaf, ...], ...]
    recent: RecentPositions | None = None


@dataclass(frozen=True)
class FeatureNorm(Piece):
    """Batch normalisation of features as a piece of a network; see `BatchNorm`.

    Attributes:
        size: the number of features.
        bias: see `BatchNorm`.
    """

    size: int
    bias: bool = True

    def shapes(self) -> Shapes:
        names = "weight", *["bias"] * self.bias, "running_mean", "running_var"
        return {f".{name}": (self.size,) for name in names} | {".num_batches_tracked": ()}

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        scale, shift = scale_and_shift(weights)
        return lambda x: x * scale + shift

    def module(self) -> Any:
        from seqgen.models.recurrent.cell import BatchNorm

        return BatchNorm(self.size, self.bias)


@dataclass(frozen=True)
class Layer(Piece):
    """Recurrent layer as a piece of a network: a `Cell` in torch, an `ArrayLayer` over arrays.

    Attributes:
        equation: what a step does.
        inputs: see `ArrayLayer`.
    """

    equation: Equation
    inputs: Any = None

    def shapes(self) -> Shapes:
        shapes = {f".{name}": about.shape for name, about in self.equation.parameters().items()}
        if self.equation.config.norms == "input":
            of_norm = FeatureNorm(shapes[".bias"][0], bias=False).shapes()
            shapes |= {f".input_norm{name}": shape for name, shape in of_norm.items()}
        return shapes

    def over_arrays(self, weights: Weights, ops: Ops) -> ArrayLayer:
        return ArrayLayer(self.equation, weights, self.inputs)

    def module(self) -> Any:
        from seqgen.models.recurrent.cell import Cell

        return Cell(self.equation.input_size, self.equation.config)


class RecurrentStack(HiddenStateModel):
    """Recurrent layers between an embedding and a softmax."""

    config: RecurrentConfig

    @staticmethod
    def pieces(config: RecurrentConfig) -> Pieces:
        equations, shares = config.equations(), config.dropout_shares
        size, embedding = equations[-1].sizes[0], None
        if config.input == "char-cnn":
            embedding = hooks.load_method("input", "char-cnn", "input=char-cnn")(config)
        elif config.input != "onehot":
            embedding = Table(config.vocab_size, config.input_size)
        norms = [FeatureNorm(one.sizes[0]) for one in equations if config.norms == "output"]
        drops = {"input_dropout": config.input_dropout, "output_dropout": config.output_dropout}
        return {
            "embedding": embedding,
            "layers": Stack([*map(Layer, equations)]),
            "norms": Stack(norms),
            "dropout": DropoutPiece(config.dropout, shares),
            **{
                name: DropoutPiece(config.dropout if p is None else p, shares)
                for name, p in drops.items()
            },
            "head": Linear(size, config.vocab_size, init=glorot),
            "pointer": NestedPart(Pointer, size, config.pointer) if config.pointer else None,
        }

    def start(self, batch: int, stride: int | None = None) -> RecurrentState:
        recent = RecentPositions.empty(batch, self.pointer.sentinel) if self.pointer else None
        return RecurrentState(tuple(layer.start(batch) for layer in self.layers), recent)

    @abstractmethod
    def first_input(self, tokens: Leaf) -> tuple[Leaf, Leaf | None]:
        """Embed tokens for the first layer, and for later layers that read words too.

        Args:
            tokens: (B, T), or one of each row, see `step_or_sequence`.
        """

    @abstractmethod
    def step_or_sequence(self, layer: Any, x: Leaf, past: Parts) -> tuple[Leaf, Parts]:
        """Run a layer on one or several tokens per row; return output and new state."""

    def outputs(
        self, tokens: Leaf, state: RecurrentState
    ) -> tuple[list[Leaf | None], tuple[Parts, ...]]:
        """Compute the word vectors of tokens and the output of each layer.

        Args:
            tokens: (B, T).
            state: of what came before.

        Returns:
            These, (B, T, H) each, residual connections added up, and the state of each layer
            after the tokens. With dense connections a layer reads all that is before its own
            output in the list.
        """
        x, vectors = self.first_input(tokens)
        outputs, after = [vectors], []
        for index, (layer, past) in enumerate(zip(self.layers, state.layers, strict=True)):
            below = self.ops.join(*outputs) if self.config.dense and index > 0 else x
            read = (self.dropout if index > 0 else self.input_dropout)(below)
            y, parts = self.step_or_sequence(layer, read, past)
            if self.norms:
                y = self.norms[index](y)
            # What a residual layer adds to is its input; the first layer has none.
            x = x + y if self.config.residual and index > 0 else y
            outputs.append(x)
            after.append(parts)
        return outputs, tuple(after)

    def hidden(self, tokens: Leaf, state: RecurrentState | None) -> tuple[Leaf, RecurrentState]:
        state = state or self.start(len(tokens))
        outputs, after = self.outputs(tokens, state)
        features, recent = self.output_dropout(outputs[-1]), None
        if self.pointer:
            # A position sees itself, so the next one sees all of these but the oldest.
            recent = state.recent.extended(features, tokens).last(self.pointer.reach - 1)
        return features, RecurrentState(after, recent)

    def logits(
        self,
        features: Leaf,
        tokens: Leaf,
        past: RecurrentState | None,
        last: int | None = None,
    ) -> Leaf:
        logits = super().logits(features, tokens, past, last)
        if not self.pointer:
            return logits
        recent = (past or self.start(len(tokens))).recent
        return self.pointer(logits, features, recent.extended(features, tokens))

    def layer_features(self, tokens: Leaf) -> list[Leaf]:
        return self.outputs(tokens, self.start(len(tokens)))[0][1:]
