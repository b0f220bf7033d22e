"""Character CNN over arrays or tensors: word vectors from characters (Kim et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from seqgen.engines.arrays import linear_map, unchanged
from seqgen.engines.ops import ArrayOps, Leaf, Ops
from seqgen.engines.parts import Piece
from seqgen.engines.weights import ArrayMap, Shapes, Weights, linear_shapes

# Characters are the bytes of UTF-8, after the padding and what stands around a word.
PAD, BEGIN, END = range(3)
BYTES = 3
CHARACTERS = BYTES + 256
# Words whose vectors are made at a time, where all of the vocabulary are.
AT_ONCE = 2048
# A highway begins by passing on nearly all of its input (Srivastava et al. 2015).
CARRY = -2.0


class Spelling(Protocol):
    """Settings of a character CNN."""

    vocab_size: int
    char_size: int
    char_length: int
    char_highways: int
    embedding_size: int | None
    filters: list[int]


def char_cnn_vectors(ops: Ops, p: Any, spelling: Leaf) -> Leaf:
    """Compute the vectors (U, E) of words from their characters (U, L).

    With C the vectors of the L characters of a word, and a filter H of width w,
    f_i = tanh(<C_i ... C_i+w-1, H> + b) for every place i, and y = max_i f_i (Kim et al. 2016,
    equations 5 and 6). The y of all filters pass through highway layers, and where the
    configuration has an `embedding_size`, through a linear map to that width (Jozefowicz et al.
    2016).
    """
    c = p.characters(spelling).swapaxes(1, 2)  # (U, C, L)
    y = ops.join(*(ops.most(ops.tanh(convolve(c)), -1) for convolve in p.convolutions))
    for layer in p.highways:
        y = highway(ops, layer, y)
    return p.projection(y)


def highway(ops: Ops, p: Any, y: Leaf) -> Leaf:
    """Apply a highway layer: t g(W_H y + b_H) + (1 - t) y, with ReLU as g.

    t = sigmoid(W_T y + b_T) is the transform gate (Srivastava et al. 2015).
    """
    t = ops.sigmoid(p.gate(y))
    return t * ops.relu(p.transform(y)) + (1 - t) * y


@dataclass(frozen=True)
class CharCNNPiece(Piece):
    """Character CNN as a piece of a network.

    A module of tensors, `SpelledEmbedding`, is to be given in its place.
    """

    config: Spelling

    def shapes(self) -> Shapes:
        config, size = self.config, sum(self.config.filters)
        shapes: Shapes = {
            ".characters.weight": (CHARACTERS, config.char_size),
            ".spelling": (config.vocab_size, config.char_length),
        }
        for i, count in enumerate(config.filters):
            shapes[f".convolutions.{i}.weight"] = count, config.char_size, i + 1
            shapes[f".convolutions.{i}.bias"] = (count,)
        for i in range(config.char_highways):
            for part in ("transform", "gate"):
                shapes |= linear_shapes(f".highways.{i}.{part}", size, size)
        if config.embedding_size is not None:
            shapes |= linear_shapes(".projection", size, config.embedding_size)
        return shapes

    def table(self, weights: Weights) -> np.ndarray:
        """Compute the vectors of all words, (V, E), from the CNN's weights."""
        layers = [weights.part("highways", i) for i in range(self.config.char_highways)]
        convolutions = [weights.part("convolutions", i) for i in range(len(self.config.filters))]
        p = SimpleNamespace(
            characters=weights["characters.weight"].__getitem__,
            convolutions=[*map(_convolution, convolutions)],
            highways=[
                SimpleNamespace(
                    transform=linear_map(layer.part("transform")),
                    gate=linear_map(layer.part("gate")),
                )
                for layer in layers
            ],
            projection=linear_map(weights.part("projection")) or unchanged,
        )
        words = weights.spelling
        pieces = [words[begin : begin + AT_ONCE] for begin in range(0, len(words), AT_ONCE)]
        return np.concatenate([char_cnn_vectors(ArrayOps, p, piece) for piece in pieces])


def _convolution(weights: Weights) -> ArrayMap:
    """Build a convolution of c (U, C, L) with filters (F, C, w)."""
    width = weights.weight.shape[-1]
    taps = [np.ascontiguousarray(weights.weight[..., i].T) for i in range(width)]  # (C, F) each

    def convolve(c: np.ndarray) -> np.ndarray:
        x = c.swapaxes(1, 2)  # (U, L, C)
        count = x.shape[1] - width + 1
        return (
            sum(x[:, i : i + count] @ tap for i, tap in enumerate(taps)) + weights.bias
        ).swapaxes(1, 2)

    return convolve
