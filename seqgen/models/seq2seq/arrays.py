"""Encoder-decoders over NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seqgen.engines.arrays import query_by_query
from seqgen.engines.ops import ArrayOps, Ops
from seqgen.engines.parts import Pieces
from seqgen.engines.weights import Weights
from seqgen.models.arrays import NeuralArrays
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.recurrent_equations import RecurrentFromSource
from seqgen.models.seq2seq.settings import Seq2SeqTransformerConfig
from seqgen.models.seq2seq.transformer_equations import ContextFromSource, CrossAttend, MemoryCache
from seqgen.models.transformer.arrays import TransformerArrays
from seqgen.models.transformer.equations import Attend


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
        self.quantized = quantized
        if config.positions == "learned":
            self.source_window = config.source_window

    @classmethod
    def pieces(cls, config: Seq2SeqTransformerConfig) -> Pieces:
        return {**super().pieces(config), "encoder": cls.encoder_of(config)}

    def encode(self, values: np.ndarray, lengths: Sequence[int]) -> Memory:
        encode = super().encode
        if self.quantized:  # padding would change the last bits, which rounding would magnify
            one_by_one = (encode(values[i : i + 1, :n], [n]) for i, n in enumerate(lengths))
            memory = Memory.cat([*one_by_one])
        else:
            memory = encode(values, lengths)
        memory.put_in_order()
        return memory

    def attending(self, attend: Attend, state: MemoryCache, rows: Sequence[int]) -> CrossAttend:
        reading = super().attending(attend, state, rows)
        return replace(reading, attend_to_all=query_by_query) if self.quantized else reading

    def hidden(self, tokens: np.ndarray, state: Any) -> tuple[np.ndarray, MemoryCache]:
        return self.read(tokens, state if isinstance(state, MemoryCache) else self.start(state))
