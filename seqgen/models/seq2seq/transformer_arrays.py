"""The encoder-decoder transformer over arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seqgen.models.engines.ops import ArrayOps, Ops
from seqgen.models.engines.weights import Shapes, Weights, linear_shapes
from seqgen.models.seq2seq.encoding import SourceBlocksArrays
from seqgen.models.seq2seq.reading import (
    ContextFromSource,
    MemoryCache,
    Reading,
    SourceAttention,
)
from seqgen.models.seq2seq.transformer_config import Seq2SeqTransformerConfig
from seqgen.models.transformer.array_model import (
    TransformerArrays,
    block_over_arrays,
    head_norm,
    norm_over_arrays,
    norm_shapes,
)
from seqgen.models.transformer.equations import Heads


class SourceAttentionArrays(SourceAttention):
    """`SourceAttention` over arrays, whose weights do not change."""

    def __init__(
        self, ops: Ops, config: Seq2SeqTransformerConfig, weights: Weights, index: int
    ) -> None:
        self.ops, self.heads = ops, Heads.of(config, index)
        self.query, self.key_value, self.output = map(
            weights.affine, ("query", "key_value", "output")
        )
        self.query_norm, self.key_norm = (
            head_norm(ops, config, weights.part(name)) for name in ("query_norm", "key_norm")
        )

    def __call__(self, x: np.ndarray, attend: Reading) -> np.ndarray:
        """See `attended`."""
        return self.attended(x, attend)

    def remember(self, encoded: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return what `SourceAttention` does, in the order in which each head is read."""
        return tuple(map(np.ascontiguousarray, super().remember(encoded)))


class Seq2SeqTransformerArrays(ContextFromSource, TransformerArrays):
    """The model of `Seq2SeqTransformer`, see there."""

    config: Seq2SeqTransformerConfig

    def __init__(
        self,
        config: Seq2SeqTransformerConfig,
        weights: Weights,
        ops: Ops = ArrayOps,
        reduced: str | None = None,
    ) -> None:
        super().__init__(config, weights, ops, reduced)
        if config.positions == "learned":
            self.source_window = config.source_window
        own = weights.part("encoder")
        self.encoder = SourceBlocksArrays(config, own, config.source_over_arrays(own), ops)

    @staticmethod
    def shapes(config: Seq2SeqTransformerConfig) -> Shapes:
        size, width = config.hidden_size, Heads.of(config, 0).widths[0]
        shapes = TransformerArrays.shapes(config)
        shapes |= config.source_shapes(config.embedding_width)
        shapes |= SourceBlocksArrays.shapes(config)
        for i in range(config.num_layers):
            at = f"blocks.{i}.cross"
            shapes |= {
                **linear_shapes(f"{at}.query", size, width, config.bias),
                **linear_shapes(f"{at}.key_value", size, 2 * width, config.bias),
                **linear_shapes(f"{at}.output", width, size, config.bias),
                **norm_shapes(config, f"{at}_norm"),
            }
            if config.qk_norm:
                head = (config.head_width,)
                shapes |= {f"{at}.{x}_norm.weight": head for x in ("query", "key")}
        return shapes

    def block(self, config: Seq2SeqTransformerConfig, weights: Weights, index: int) -> Callable:
        cross = SourceAttentionArrays(self.ops, config, weights.part("cross"), index)
        norm = norm_over_arrays(self.ops, config, weights.part("cross_norm"))
        made = block_over_arrays(self.ops, config, weights, index, cross, norm)
        made.cross = cross  # for `encode`
        return made

    def hidden(self, tokens: np.ndarray, state: Any) -> tuple[np.ndarray, MemoryCache]:
        return self.read(tokens, state if isinstance(state, MemoryCache) else self.start(state))
