"""Long short-term memory (Hochreiter and Schmidhuber 1997; forget gate: Gers et al. 2000)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from seqgen.configs import setting
from seqgen.models.cells.cell import Cell, LayerState
from seqgen.models.ops import Ops
from seqgen.models.precision import kernel_arithmetic
from seqgen.models.recurrent import RecurrentLM
from seqgen.models.recurrent_config import RecurrentConfig


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(RecurrentConfig):
    """A stack of LSTM layers."""

    # oneDNN's kernel keeps its weights in bf16 and its states in float32.
    bf16_pays_from: ClassVar[int] = 1 << 17

    forget_bias: float = setting(
        "Initial bias of the forget gate (Jozefowicz et al. 2015).", 1.0, low=-1000, high=1000
    )


class LSTMCell(Cell):
    """The cell, with gates in the order i, f, g, o.

    i_t = sigma(W_xi x_t + W_hi h_{t-1} + b_i)
    f_t = sigma(W_xf x_t + W_hf h_{t-1} + b_f)
    g_t = tanh(W_xg x_t + W_hg h_{t-1} + b_g)
    o_t = sigma(W_xo x_t + W_ho h_{t-1} + b_o)
    c_t = f_t * c_{t-1} + i_t * g_t
    h_t = o_t * tanh(c_t)
    """

    inputs = 4
    parts = "h", "c"

    def __init__(self, input_size: int, config: LSTMConfig) -> None:
        super().__init__(input_size, config)
        with torch.no_grad():
            self.bias.chunk(4)[1].fill_(config.forget_bias)

    def equation(self, ops: Ops, w: Any, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        i, f, g, o = ops.gates(w.hh(h, x), ops.sigmoid, ops.sigmoid, ops.tanh, ops.sigmoid)
        c = f * c + i * g
        return o * ops.tanh(c), c

    def fast_sequence(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        past = [part[None] for part in state]
        weights = [self.weight_ih, self.weight_hh, self.bias, torch.zeros_like(self.bias)]
        with kernel_arithmetic(x.device):
            y, h, c = torch.lstm(x, past, weights, True, 1, 0.0, self.training, False, True)
        return y, (h[0], c[0])


class LSTM(RecurrentLM):
    """The registry's `lstm`."""

    cell = LSTMCell
