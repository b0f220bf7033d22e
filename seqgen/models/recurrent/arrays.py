"""Recurrent language models over NumPy arrays."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from seqgen.engines.native.recording import Program, Recorded, record_program
from seqgen.engines.ops import ArrayOps, Leaf
from seqgen.engines.parts import Stack, fill_over_arrays
from seqgen.engines.weights import Weights, is_buffer
from seqgen.models.arrays import NeuralArrays
from seqgen.models.recurrent.array_layer import ArrayLayer
from seqgen.models.recurrent.cells.equation import Parts
from seqgen.models.recurrent.equations import RecurrentStack, RecurrentState

if TYPE_CHECKING:
    from seqgen.models.recurrent.settings import RecurrentConfig


def group_by_layer(parts: Iterable[Leaf], layers: Iterable[Sized]) -> tuple[Parts, ...]:
    """Group a flat sequence of state parts by layer."""
    iterator = iter(parts)
    return tuple(tuple(itertools.islice(iterator, len(layer))) for layer in layers)


class RecurrentArrays(RecurrentStack, NeuralArrays):
    """Recurrent language model over arrays, whose first layer takes token ids; see `RecurrentLM`.

    Args:
        config: of the model.
        weights: of `shapes`.
    """

    def __init__(self, config: RecurrentConfig, weights: Weights) -> None:
        self.config, self.weights = config, weights
        pieces = self.pieces(config)
        self.vectors = weights.get("embedding.weight")
        if config.input == "char-cnn":
            self.vectors = pieces["embedding"].table(weights.part("embedding"))
        first = ArrayLayer.one_hot if self.vectors is None else self.vectors
        lowest, *others = pieces["layers"].items
        layers = Stack([replace(lowest, inputs=first), *others])
        fill_over_arrays(self, {**pieces, "embedding": None, "layers": layers}, weights)
        self.dtype = weights["layers.0.bias"].dtype

    def parameters(self) -> dict[str, np.ndarray]:
        """List the trained parameters by name; shared ones under their first name."""
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
        return logits, RecurrentState(group_by_layer(parts, state.layers))

    def outputs(
        self, tokens: np.ndarray, state: RecurrentState
    ) -> tuple[list[np.ndarray | None], tuple[Parts, ...]]:
        """Compute the outputs of each layer; one token per row, (B,) or (B, 1), as in `step`."""
        if tokens.shape[1:] == (1,) and not isinstance(tokens, Recorded):
            outputs, after = self.outputs(tokens[:, 0], state)
            return [None if x is None else x[:, None] for x in outputs], after
        if tokens.ndim > 1 or self.watched or self.program_of_layers is None:
            return super().outputs(tokens, state)
        found = self.run_program(self.program_of_layers, tokens, state)
        count = len(self.layers)
        return [None, *found[:count]], group_by_layer(found[count:], state.layers)

    @property
    def watched(self) -> bool:
        """Whether values inside the cells are being observed, as `seqgen inspect` does."""
        return any(layer.ops is not ArrayOps for layer in self.layers)

    def run_program(
        self, program: Program, ids: np.ndarray, state: RecurrentState
    ) -> list[np.ndarray]:
        return program(len(ids), [self.layers[0].product(ids), *itertools.chain(*state.layers)])

    @functools.cached_property
    def program(self) -> Program | None:
        """Native program of a step after the first layer's input; None without the library."""

        def step(read: Recorded, state: RecurrentState) -> list[Recorded]:
            x, after = self.hidden(read, state)
            return [self.head(x), *itertools.chain(*after.layers)]

        return self.record(step)

    @functools.cached_property
    def program_of_layers(self) -> Program | None:
        """Native program of a step up to the outputs of each layer, without the head."""

        def layers(read: Recorded, state: RecurrentState) -> list[Recorded]:
            outputs, after = self.outputs(read, state)
            return [*outputs[1:], *itertools.chain(*after)]

        return self.record(layers)

    def record(self, step: Callable[[Recorded, RecurrentState], list[Recorded]]) -> Program | None:
        """Record a native program of what follows the first layer's input."""
        if self.dtype != np.float32 or self.config.dense:
            return None
        sizes = [layer.equation.sizes for layer in self.layers]
        widths = self.layers[0].width, *itertools.chain(*sizes)
        return record_program(
            lambda read, *parts: step(read, RecurrentState(group_by_layer(parts, sizes))),
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
        """Look up the embeddings (..., E) of ids."""
        if self.vectors is not None:
            return self.vectors[ids]
        rows = np.zeros((*ids.shape, self.vocab_size), self.dtype)
        np.put_along_axis(rows, ids[..., None], 1, -1)
        return rows
