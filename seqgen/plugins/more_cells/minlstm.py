"""The minimal LSTM, whose gates do not read the past (Feng et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seqgen.engines.ops import Ops
from seqgen.models.recurrent.cells.equation import Equation, Parameter
from seqgen.plugins.more_cells.linear import LinearEquation
from seqgen.plugins.more_cells.mingru import MinGRUConfig, positive_activation
from seqgen.settings import ranges, setting


class MinLSTM(LinearEquation):
    """Minimal LSTM cell, with blocks f, i, n, and the minimal GRU's activation g.

    f_t = sigma(W_f x_t + b_f)
    i_t = sigma(W_i x_t + b_i)
    n_t = g(W_n x_t + b_n)
    h_t = (f_t * h_{t-1} + i_t * n_t) / (f_t + i_t)
    """

    inputs = 3
    keeps = "kept"

    def biases(self) -> Parameter:
        return self.vector(self.config.forget_bias, 0.0, 0.0)

    def terms(self, ops: Ops, w: Any, x: Any) -> tuple[Any, Any]:
        gates, n = ops.split(x, 2, 1)
        f, i = ops.split(ops.sigmoid(gates), 1, 1)
        kept = f / (f + i)
        n = positive_activation(ops, n) if self.config.positive else n
        ops.show(f=f, i=i, n=n, kept=kept)
        n = w.dropped(n)
        return kept, (1 - kept) * n


@dataclass(frozen=True, kw_only=True)
class MinLSTMConfig(MinGRUConfig):
    """Configuration of a stack of minimal LSTM layers."""

    equation: ClassVar[type[Equation]] = MinLSTM

    forget_bias: float = setting(
        "Initial bias of the forget gate (Feng et al. 2024).", 1.0, ranges.SIGNED_TO_1000
    )
