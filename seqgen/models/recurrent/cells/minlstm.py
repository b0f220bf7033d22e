"""The minimal LSTM, whose gates do not read the past (Feng et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from seqgen.configs import ranges, setting
from seqgen.models.engines.ops import Ops
from seqgen.models.recurrent.cells.linear import LinearCell
from seqgen.models.recurrent.cells.mingru import MinGRUConfig, made_positive
from seqgen.models.recurrent.model import RecurrentLM


@dataclass(frozen=True, kw_only=True)
class MinLSTMConfig(MinGRUConfig):
    """A stack of minimal LSTM layers."""

    forget_bias: float = setting(
        "Initial bias of the forget gate (Feng et al. 2024).", 1.0, ranges.SIGNED_TO_1000
    )


class MinLSTMCell(LinearCell):
    """The cell, with blocks in the order f, i, n, and g as in the minimal GRU.

    f_t = sigma(W_f x_t + b_f)
    i_t = sigma(W_i x_t + b_i)
    n_t = g(W_n x_t + b_n)
    h_t = (f_t * h_{t-1} + i_t * n_t) / (f_t + i_t)
    """

    inputs = 3
    keeps = "kept"

    def __init__(self, input_size: int, config: MinLSTMConfig) -> None:
        super().__init__(input_size, config)
        self.positive = config.positive
        with torch.no_grad():
            self.bias.chunk(3)[0].fill_(config.forget_bias)

    def terms(self, ops: Ops, w: Any, x: Any) -> tuple[Any, Any]:
        gates, n = ops.split(x, 2, 1)
        f, i = ops.split(ops.sigmoid(gates), 1, 1)
        kept = f / (f + i)
        n = made_positive(ops, n) if self.positive else n
        ops.show(f=f, i=i, n=n, kept=kept)
        n = w.dropped(n)
        return kept, (1 - kept) * n


class MinLSTM(RecurrentLM):
    """The registry's `minlstm`."""

    cell = MinLSTMCell
