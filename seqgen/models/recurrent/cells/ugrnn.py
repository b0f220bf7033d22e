"""The update gate recurrent network (Collins, Sohl-Dickstein and Sussillo 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from seqgen.configs import ranges, setting
from seqgen.models.engines.ops import Ops
from seqgen.models.recurrent.cells.cell import Cell
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.model import RecurrentLM


@dataclass(frozen=True, kw_only=True)
class UGRNNConfig(RecurrentConfig):
    """A stack of update gate layers."""

    forget_bias: float = setting(
        "Initial bias of the gate: how much of the past is kept.", 1.0, ranges.SIGNED_TO_1000
    )


class UGRNNCell(Cell):
    """The cell, with blocks in the order g, c.

    g_t = sigma(W_xg x_t + W_hg h_{t-1} + b_g)
    c_t = tanh(W_xc x_t + W_hc h_{t-1} + b_c)
    h_t = g_t * h_{t-1} + (1 - g_t) * c_t
    """

    inputs = 2
    has_update = True
    keeps = "g"

    def __init__(self, input_size: int, config: UGRNNConfig) -> None:
        super().__init__(input_size, config)
        with torch.no_grad():
            self.bias.chunk(2)[0].fill_(config.forget_bias)

    def equation(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        g, c = ops.gates(w.hh(h, x), ops.sigmoid, ops.tanh)
        ops.show(g=g, c=c)
        c = w.dropped(c)
        return (c + g * (h - c),)


class UGRNN(RecurrentLM):
    """The registry's `ugrnn`."""

    cell = UGRNNCell
