"""Recurrent language models over arrays: layers, stacks and heads whose weights do not change."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from seqgen.models.engines.arrays import (
    Arrays,
    input_map,
    input_map_of_ids,
)
from seqgen.models.engines.native.recording import Program, Recorded, recorded
from seqgen.models.engines.ops import ArrayOps, Ops
from seqgen.models.engines.weights import Shapes, Weights, is_buffer, linear_shapes
from seqgen.models.memory.pointer import pointed, pointer_shapes
from seqgen.models.memory.recent import Recent
from seqgen.models.reader import NeuralArrays
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.equation import Equation, unchanged
from seqgen.models.recurrent.norm_terms import norm_shapes, scale_and_shift
from seqgen.models.recurrent.row_maps import RowInput, over_arrays
from seqgen.models.recurrent.state import RecurrentState
from seqgen.models.words.spelling import spelled_words, spelling_shapes

# Positions of a text whose products with the input are made at once.
PIECE = 512


class ArrayLayer:
    """A recurrent layer over arrays.

    Args:
        equation: what a step does.
        p: its weights.
        inputs: (V, E), the vectors that ids stand for, where the layer is to take ids; `one_hot`
            where they are the identity; None where it takes vectors.
    """

    one_hot = "one-hot"
    ops: Ops = ArrayOps

    def __init__(
        self, equation: Equation, p: Weights, inputs: np.ndarray | str | None = None
    ) -> None:
        self.equation, self.takes_ids = equation, inputs is not None
        weight, bias = equation.map_of_input(ArrayOps, p)
        if equation.config.norms == "input":
            scale, shift = scale_and_shift(p.part("input_norm"))
            weight, bias = weight * scale[:, None], bias + shift
        of_input, self.width, self.dtype, self.bias = (weight, bias), len(bias), bias.dtype, bias
        if inputs is self.one_hot:
            self.product = input_map_of_ids(*of_input)
        else:
            self.product = input_map(*of_input, inputs)
        beside = None if self.takes_ids else of_input
        maps = equation.maps_of_past(ArrayOps, p)
        self.w: Any = over_arrays(maps, equation.vectors(ArrayOps, p), beside)
        self.w.dropped = unchanged

    def start(self, batch: int) -> Arrays:
        """Return the parts before the first step: zeros."""
        return tuple(np.zeros((batch, size), self.dtype) for size in self.equation.sizes)

    def noise(self, rows: int) -> None:
        """Return what a call drops: nothing."""

    def step(self, x: np.ndarray, state: Arrays, noise: None = None) -> Arrays:
        """Take one step: x (B, E), or ids (B,), and the parts to the next ones.

        Where it takes ids, a recorded x is what the products of an id are.
        """
        if self.takes_ids:
            read = x if isinstance(x, Recorded) else self.product(x)
        else:
            read = RowInput(self.product, x)
        return self.equation.expected(state, self.equation(self.ops, self.w, read, *state))

    def sequence(
        self, x: np.ndarray, state: Arrays, noise: None = None
    ) -> tuple[np.ndarray, Arrays]:
        """Take x (B, T, E), or ids (B, T), to every h (B, T, H) and the parts after it.

        The input's products are made for many steps at once.
        """
        rows, length = x.shape[:2]
        outputs = []
        for begin in range(0, length, PIECE):
            piece = x[:, begin : begin + PIECE].swapaxes(0, 1)  # (T, B, E), or (T, B)
            read = self.product(piece.reshape(-1, *piece.shape[2:])).reshape(-1, rows, self.width)
            for x_t in read:
                new = self.equation(self.ops, self.w, x_t, *state)
                state = self.equation.expected(state, new)
                outputs.append(state[0])
        return np.stack(outputs, 1), state


def layer_shapes(prefix: str, equation: Equation) -> Shapes:
    """Return the shapes of a layer's weights."""
    return {prefix + name: about.shape for name, about in equation.parameters().items()}


class RecurrentArrays(NeuralArrays):
    """A stack of recurrent layers between an embedding and a softmax; see `RecurrentLM`.

    Args:
        config: of the model.
        weights: of `shapes`.
    """

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig, weights: Weights) -> None:
        self.config, self.weights = config, weights
        self.vectors = weights.get("embedding.weight")
        if config.input == "char-cnn":
            self.vectors = spelled_words(config, weights.part("embedding"))
        first = ArrayLayer.one_hot if self.vectors is None else self.vectors
        self.layers = [
            ArrayLayer(equation, weights.part("layers", i), first if i == 0 else None)
            for i, equation in enumerate(config.equations())
        ]
        self.norms = []
        if config.norms == "output":
            parts = [weights.part("norms", i) for i in range(config.num_layers)]
            self.norms = [scale_and_shift(part) for part in parts]
        self.dtype = weights["layers.0.bias"].dtype
        self.head = weights.affine("head")
        if config.pointer:
            own = weights.part("pointer")
            self.pointer = SimpleNamespace(query=own.affine("query"), sentinel=own.sentinel)

    @staticmethod
    def shapes(config: RecurrentConfig) -> Shapes:
        shapes: Shapes = {}
        if config.input == "char-cnn":
            shapes |= spelling_shapes(config, "embedding")
        elif config.input != "onehot":
            shapes["embedding.weight"] = config.vocab_size, config.input_size
        for i, equation in enumerate(config.equations()):
            prefix = f"layers.{i}."
            shapes |= layer_shapes(prefix, equation)
            if config.norms == "input":
                blocks = shapes[f"{prefix}bias"][0]
                shapes |= norm_shapes(f"{prefix}input_norm.", blocks, has_bias=False)
            if config.norms == "output":
                shapes |= norm_shapes(f"norms.{i}.", equation.sizes[0])
            size = equation.sizes[0]
        shapes |= linear_shapes("head", size, config.vocab_size)
        return shapes | (pointer_shapes(size) if config.pointer else {})

    def parameters(self) -> dict[str, np.ndarray]:
        """Return what is trained by name; what several parts share, under the first name."""
        again = {name for names in self.config.shared_weights() for name in names[1:]}
        names = (name for name in self.shapes(self.config) if not is_buffer(name))
        return {name: self.weights[name] for name in names if name not in again}

    def start(self, batch: int, stride: int | None = None) -> RecurrentState:
        recent = Recent.empty(batch, self.like) if self.config.pointer else None
        return RecurrentState(tuple(layer.start(batch) for layer in self.layers), recent)

    def step(
        self, tokens: Sequence[int], state: RecurrentState
    ) -> tuple[np.ndarray, RecurrentState]:
        if self.config.pointer:
            return super().step(tokens, state)
        ids = np.asarray(tokens)
        watched = any(layer.ops is not ArrayOps for layer in self.layers)
        if watched or self.program is None:
            x, state = self.hidden(ids, state)
            return self.head(x), state
        inputs = [self.layers[0].product(ids), *itertools.chain(*state.layers)]
        logits, *parts = self.program(len(ids), inputs)
        found = iter(parts)
        layers = (tuple(itertools.islice(found, len(past))) for past in state.layers)
        return logits, RecurrentState(tuple(layers))

    @functools.cached_property
    def program(self) -> Program | None:
        """The step after the first layer's input in one call; None where NumPy takes it."""
        if self.dtype != np.float32 or self.config.dense:
            return None
        sizes = [layer.equation.sizes for layer in self.layers]

        def step(read: Recorded, *parts: Recorded) -> list[Recorded]:
            found = iter(parts)
            past = [tuple(itertools.islice(found, len(of_layer))) for of_layer in sizes]
            x, after = self.hidden(read, RecurrentState(tuple(past)))
            return [self.head(x), *itertools.chain(*after.layers)]

        widths = self.layers[0].width, *itertools.chain(*sizes)
        return recorded(step, [(width,) for width in widths])

    def hidden(
        self, tokens: np.ndarray, state: RecurrentState | None
    ) -> tuple[np.ndarray, RecurrentState]:
        """Read a token of each row (B,), or several (B, T); return h (B, H) or (B, T, H)."""
        state = state or self.start(len(tokens))
        outputs, after = self.outputs(tokens, state)
        if self.config.pointer:
            # A position sees itself, so the next one sees all of these but the oldest.
            recent = state.recent.extended(outputs[-1], tokens)
            after.recent = recent.last(self.config.pointer - 1)
        return outputs[-1], after

    def logits(
        self,
        features: np.ndarray,
        tokens: np.ndarray,
        past: RecurrentState | None,
        last: int | None = None,
    ) -> np.ndarray:
        logits = super().logits(features, tokens, past, last)
        if not self.config.pointer:
            return logits
        recent = (past or self.start(len(tokens))).recent.extended(features, tokens)
        return pointed(ArrayOps, self.pointer, self.config.pointer, logits, features, recent)

    def layer_features(self, tokens: np.ndarray) -> list[np.ndarray]:
        return self.outputs(tokens, self.start(len(tokens)))[0]

    def outputs(
        self, tokens: np.ndarray, state: RecurrentState
    ) -> tuple[list[np.ndarray], RecurrentState]:
        """Return what `hidden` does, but of every layer, the first first.

        A recorded `tokens` is what the first layer's products of a token are; see `program`.
        """
        one = tokens.ndim == 1 or isinstance(tokens, Recorded)
        x, outputs, after = tokens, [], []
        read = [self.inputs(tokens)] if self.config.dense else []
        for index, (layer, past) in enumerate(zip(self.layers, state.layers, strict=True)):
            below = np.concatenate([*read, *outputs], -1) if read and index > 0 else x
            if one:
                parts = layer.step(below, past)
                y = parts[0]
            else:
                y, parts = layer.sequence(below, past)
            if self.norms:
                scale, shift = self.norms[index]
                y = y * scale + shift
            # What a residual layer adds to is its input; the first layer has none.
            x = x + y if self.config.residual and index > 0 else y
            outputs.append(x)
            after.append(parts)
        return outputs, RecurrentState(tuple(after))

    def inputs(self, ids: np.ndarray) -> np.ndarray:
        """Return the first layer's input (..., E) of ids, where later layers read it too."""
        if self.vectors is not None:
            return self.vectors[ids]
        rows = np.zeros((*ids.shape, self.vocab_size), self.dtype)
        np.put_along_axis(rows, ids[..., None], 1, -1)
        return rows
