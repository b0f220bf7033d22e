"""Declaration of a character CNN as the embedding of a recurrent model, for both engines."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from seqgen.engines.arrays import identity, linear_map
from seqgen.engines.ops import ArrayOps
from seqgen.engines.parts import Piece
from seqgen.engines.weights import ArrayMap, Shapes, Weights, linear_shapes
from seqgen.plugins.labels.models.spelling import AT_ONCE, CHARACTERS, Spelling, char_cnn_vectors


@dataclass(frozen=True)
class CharCNNPiece(Piece):
    """Character CNN as a piece of a network."""

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

    def module(self) -> Any:
        from seqgen.plugins.labels.models.char_cnn import SpelledEmbedding

        return SpelledEmbedding(self.config)

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
            projection=linear_map(weights.part("projection")) or identity,
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
