"""Recurrent language models: a stack of layers for both engines, and the model over arrays."""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seqgen.engines.native.recording import Program, Recorded, recorded
from seqgen.engines.ops import ArrayOps, Leaf, Ops
from seqgen.engines.parts import (
    DropoutPiece,
    Linear,
    Made,
    Piece,
    Pieces,
    Stack,
    Table,
    fill_over_arrays,
    glorot,
)
from seqgen.engines.weights import Shapes, Weights, is_buffer
from seqgen.models.inference import HiddenStateModel, NeuralArrays
from seqgen.models.memory.pointer import Pointer
from seqgen.models.memory.recent import Recent
from seqgen.models.recurrent.array_layer import ArrayLayer, scale_and_shift
from seqgen.models.recurrent.equation import Equation, Parts
from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.models.recurrent.spelling import Spelled
from seqgen.models.state import State


@dataclass
class RecurrentState(State):
    """What the layers hand on, and what a pointer looks back at.

    Attributes:
        layers: for each layer, the parts that its cell hands on, (B, H) unless it says otherwise.
        recent: the last positions; None in a model without a pointer.
    """

    layers: tuple[tuple[Leaf, ...], ...]
    recent: Recent | None = None


@dataclass(frozen=True)
class FeatureNorm(Piece):
    """A normalisation over batch and time of each feature: a `BatchNorm` of tensors.

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
        from seqgen.models.recurrent.batch_norm import BatchNorm

        return BatchNorm(self.size, self.bias)


@dataclass(frozen=True)
class Layer(Piece):
    """A recurrent layer of an equation: a `Cell` of tensors, or an `ArrayLayer`.

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
    """A stack of recurrent layers between an embedding and a softmax."""

    config: RecurrentConfig

    @staticmethod
    def pieces(config: RecurrentConfig) -> Pieces:
        equations, shares = config.equations(), config.dropout_shares
        size, embedding = equations[-1].sizes[0], None
        if config.input == "char-cnn":
            embedding = Spelled(config)
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
            "pointer": Made(Pointer, size, config.pointer) if config.pointer else None,
        }

    def start(self, batch: int, stride: int | None = None) -> RecurrentState:
        recent = Recent.empty(batch, self.pointer.sentinel) if self.pointer else None
        return RecurrentState(tuple(layer.start(batch) for layer in self.layers), recent)

    @abstractmethod
    def first_input(self, tokens: Leaf) -> tuple[Leaf, Leaf | None]:
        """Return what the first layer reads of tokens, and their vectors if later ones read these.

        Args:
            tokens: (B, T), or one of each row, see `step_or_sequence`.
        """

    @abstractmethod
    def step_or_sequence(self, layer: Any, x: Leaf, past: Parts) -> tuple[Leaf, Parts]:
        """Return what a layer makes of x, one token of each row or several, and the parts after."""

    def outputs(
        self, tokens: Leaf, state: RecurrentState
    ) -> tuple[list[Leaf | None], tuple[Parts, ...]]:
        """Return the vectors of tokens, see `first_input`, and what each layer makes of them.

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


def by_layer(parts: Iterable[Leaf], layers: Iterable[Sized]) -> tuple[Parts, ...]:
    """Return the parts of a state, in order, as many for each layer as it has."""
    found = iter(parts)
    return tuple(tuple(itertools.islice(found, len(layer))) for layer in layers)


class RecurrentArrays(RecurrentStack, NeuralArrays):
    """`RecurrentLM` over arrays; its first layer takes ids.

    Args:
        config: of the model.
        weights: of `shapes`.
    """

    def __init__(self, config: RecurrentConfig, weights: Weights) -> None:
        self.config, self.weights = config, weights
        self.vectors = weights.get("embedding.weight")
        if config.input == "char-cnn":
            self.vectors = Spelled(config).table(weights.part("embedding"))
        first = ArrayLayer.one_hot if self.vectors is None else self.vectors
        pieces = self.pieces(config)
        lowest, *others = pieces["layers"].items
        layers = Stack([replace(lowest, inputs=first), *others])
        fill_over_arrays(self, {**pieces, "embedding": None, "layers": layers}, weights)
        self.dtype = weights["layers.0.bias"].dtype

    def parameters(self) -> dict[str, np.ndarray]:
        """Return what is trained by name; what several parts share, under the first name."""
        again = {name for names in self.config.shared_weights() for name in names[1:]}
        names = (name for name in self.shapes(self.config) if not is_buffer(name))
        return {name: self.weights[name] for name in names if name not in again}

    def step(
        self, tokens: Sequence[int], state: RecurrentState
    ) -> tuple[np.ndarray, RecurrentState]:
        if self.config.pointer:
            return super().step(tokens, state)
        ids = np.asarray(tokens)
        if self.watched or self.program is None:
            x, state = self.hidden(ids, state)
            return self.head(x), state
        logits, *parts = self.run_program(self.program, ids, state)
        return logits, RecurrentState(by_layer(parts, state.layers))

    def outputs(
        self, tokens: np.ndarray, state: RecurrentState
    ) -> tuple[list[np.ndarray | None], tuple[Parts, ...]]:
        """Return the outputs of each layer; one token of each row, (B,) or (B, 1), as in `step`."""
        if tokens.shape[1:] == (1,) and not isinstance(tokens, Recorded):
            outputs, after = self.outputs(tokens[:, 0], state)
            return [None if x is None else x[:, None] for x in outputs], after
        if tokens.ndim > 1 or self.watched or self.program_of_layers is None:
            return super().outputs(tokens, state)
        found = self.run_program(self.program_of_layers, tokens, state)
        count = len(self.layers)
        return [None, *found[:count]], by_layer(found[count:], state.layers)

    @property
    def watched(self) -> bool:
        """Whether somebody looks at what an equation computes on the way; see `watched.py`."""
        return any(layer.ops is not ArrayOps for layer in self.layers)

    def run_program(
        self, program: Program, ids: np.ndarray, state: RecurrentState
    ) -> list[np.ndarray]:
        inputs = [self.layers[0].product(ids), *itertools.chain(*state.layers)]
        return program(len(ids), inputs)

    @functools.cached_property
    def program(self) -> Program | None:
        """The step after the first layer's input in one call; None where NumPy takes it."""

        def step(read: Recorded, state: RecurrentState) -> list[Recorded]:
            x, after = self.hidden(read, state)
            return [self.head(x), *itertools.chain(*after.layers)]

        return self.record(step)

    @functools.cached_property
    def program_of_layers(self) -> Program | None:
        """The same step up to the outputs of each layer, without the head."""

        def layers(read: Recorded, state: RecurrentState) -> list[Recorded]:
            outputs, after = self.outputs(read, state)
            return [*outputs[1:], *itertools.chain(*after)]

        return self.record(layers)

    def record(self, step: Callable[[Recorded, RecurrentState], list[Recorded]]) -> Program | None:
        """Record what follows the first layer's input, from it and the state before."""
        if self.dtype != np.float32 or self.config.dense:
            return None
        sizes = [layer.equation.sizes for layer in self.layers]
        widths = self.layers[0].width, *itertools.chain(*sizes)
        return recorded(
            lambda read, *parts: step(read, RecurrentState(by_layer(parts, sizes))),
            [(width,) for width in widths],
        )

    def first_input(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return tokens, self.inputs(tokens) if self.config.dense else None

    def step_or_sequence(
        self, layer: ArrayLayer, x: np.ndarray, past: Parts
    ) -> tuple[np.ndarray, Parts]:
        # The first layer's products of a token are recorded, and not its id.
        takes_ids = layer.takes_ids and not isinstance(x, Recorded)
        if x.ndim > 2 - takes_ids:
            return layer.sequence(x, past)
        parts = layer.step(x, past)
        return parts[0], parts

    def inputs(self, ids: np.ndarray) -> np.ndarray:
        """Return the vectors (..., E) of ids."""
        if self.vectors is not None:
            return self.vectors[ids]
        rows = np.zeros((*ids.shape, self.vocab_size), self.dtype)
        np.put_along_axis(rows, ids[..., None], 1, -1)
        return rows
