"""Encoder-decoders over NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqgen.engines.ops import ArrayOps, Ops
from seqgen.engines.parts import Pieces
from seqgen.engines.weights import Weights
from seqgen.models.arrays import NeuralArrays
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.recurrent_equations import RecurrentFromSource
from seqgen.models.seq2seq.settings import Seq2SeqTransformerConfig
from seqgen.models.seq2seq.transformer_equations import ContextFromSource, MemoryCache
from seqgen.models.transformer.arrays import TransformerArrays


class Seq2SeqArrays(RecurrentFromSource, NeuralArrays):
    """Recurrent encoder-decoder over NumPy arrays; see `RecurrentFromSource`."""


class Seq2SeqTransformerArrays(ContextFromSource, TransformerArrays):
    """Encoder-decoder transformer over NumPy arrays; see `Seq2SeqTransformer`."""

    config: Seq2SeqTransformerConfig

    def __init__(
        self,
        config: Seq2SeqTransformerConfig,
        weights: Weights,
        ops: Ops = ArrayOps,
        quantized: str | None = None,
    ) -> None:
        super().__init__(config, weights, ops, quantized)
        if config.positions == "learned":
            self.source_window = config.source_window

    @classmethod
    def pieces(cls, config: Seq2SeqTransformerConfig) -> Pieces:
        return {**super().pieces(config), "encoder": cls.encoder_of(config)}

    def encode(self, values: np.ndarray, lengths: Sequence[int]) -> Memory:
        memory = super().encode(values, lengths)
        memory.put_in_order()
        return memory

    def hidden(self, tokens: np.ndarray, state: Any) -> tuple[np.ndarray, MemoryCache]:
        return self.read(tokens, state if isinstance(state, MemoryCache) else self.start(state))
