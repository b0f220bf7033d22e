"""The encoder-decoder transformer over arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np

from seqgen.models.engines.arrays import attend
from seqgen.models.engines.weights import Weights
from seqgen.models.seq2seq.reading import MemoryCache, Reading, cross_attention
from seqgen.models.seq2seq.transformer_config import Seq2SeqTransformerConfig
from seqgen.models.transformer.array_model import (
    TransformerArrays,
    block_over_arrays,
    head_norm,
    norm_over_arrays,
)
from seqgen.models.transformer.equations import Attend, Heads


class Seq2SeqTransformerArrays(TransformerArrays):
    """The decoder of `Seq2SeqTransformer`, see there."""

    config: Seq2SeqTransformerConfig

    def block(self, config: Seq2SeqTransformerConfig, weights: Weights, index: int) -> Callable:
        heads, own, ops = Heads.of(config, index), weights.part("cross"), self.ops
        maps = SimpleNamespace(
            query=own.affine("query"),
            output=own.affine("output"),
            query_norm=head_norm(ops, config, own.part("query_norm")),
        )
        return block_over_arrays(
            ops,
            config,
            weights,
            index,
            cross=functools.partial(cross_attention, ops, maps, heads),
            cross_norm=norm_over_arrays(ops, config, weights.part("cross_norm")),
        )

    def attending(self, attend: Attend, state: MemoryCache, rows: Sequence[int]) -> Reading:
        return Reading(attend, state.memory.select(rows), attend_to_all)


def attend_to_all(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, there: np.ndarray | None
) -> np.ndarray:
    """See `Reading`."""
    return attend(q, keys, values, None if there is None else there[:, None, None])
