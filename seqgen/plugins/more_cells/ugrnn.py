"""The update gate recurrent network (Collins, Sohl-Dickstein and Sussillo 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seqgen.engines.ops import Ops
from seqgen.models.recurrent.cells.equation import Equation, Parameter
from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.settings import ranges, setting


class UGRNN(Equation):
    """Update gate cell, with blocks in the order g, c.

    g_t = sigma(W_xg x_t + W_hg h_{t-1} + b_g)
    c_t = tanh(W_xc x_t + W_hc h_{t-1} + b_c)
    h_t = g_t * h_{t-1} + (1 - g_t) * c_t
    """

    inputs = 2
    has_update = True
    keeps = "g"

    def biases(self) -> Parameter:
        return self.vector(self.config.forget_bias, 0.0)

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        g, c = ops.gates(w.hh(h, x), ops.sigmoid, ops.tanh)
        ops.show(g=g, c=c)
        c = w.dropped(c)
        return (c + g * (h - c),)


@dataclass(frozen=True, kw_only=True)
class UGRNNConfig(RecurrentConfig):
    """Configuration of a stack of update gate layers."""

    equation: ClassVar[type[Equation]] = UGRNN

    forget_bias: float = setting(
        "Initial bias of the gate: how much of the past is kept.", 1.0, ranges.SIGNED_TO_1000
    )
