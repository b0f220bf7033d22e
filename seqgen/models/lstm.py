"""Long short-term memory (Hochreiter and Schmidhuber 1997; forget gate: Gers et al. 2000)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqgen.configs import setting
from seqgen.models.arrays import Arrays, ArrayStep, gates_of
from seqgen.models.precision import kernel_arithmetic
from seqgen.models.recurrent import LayerState, RecurrentConfig, RecurrentLayer, RecurrentLM


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(RecurrentConfig):
    """A stack of LSTM layers."""

    # oneDNN's kernel keeps its weights in bf16 and its states in float32.
    bf16_pays_from: ClassVar[int] = 1 << 17

    forget_bias: float = setting("Initial bias of the forget gate (Jozefowicz et al. 2015).", 1.0)


class LSTMLayer(RecurrentLayer):
    """The cell, with gates in the order i, f, g, o.

    i_t = sigma(W_xi x_t + W_hi h_{t-1} + b_i)
    f_t = sigma(W_xf x_t + W_hf h_{t-1} + b_f)
    g_t = tanh(W_xg x_t + W_hg h_{t-1} + b_g)
    o_t = sigma(W_xo x_t + W_ho h_{t-1} + b_o)
    c_t = f_t * c_{t-1} + i_t * g_t
    h_t = o_t * tanh(c_t)
    """

    gates = 4
    state_parts = 2

    def __init__(self, input_size: int, config: LSTMConfig) -> None:
        super().__init__(input_size, config)
        with torch.no_grad():
            self.bias.chunk(4)[1].fill_(config.forget_bias)

    def step(self, x: Tensor, state: LayerState) -> LayerState:
        h, c = state
        gates = torch.addmm(self.bias, x, self.weight_ih.T).addmm(h, self.weight_hh.T)
        i, f, g, o = gates.chunk(4, dim=-1)  # (B, H) each
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return h, c

    def array_step(self, inputs: Tensor | None) -> ArrayStep:
        size = self.hidden_size
        # sigma(a) = (1 + tanh(a / 2)) / 2, so that one tanh does for all gates, in the order
        # i, f, o, g: halving is exact.
        order = torch.arange(4 * size).view(4, size)[[0, 1, 3, 2]].flatten()
        half = self.bias.new_tensor([0.5, 0.5, 0.5, 1]).repeat_interleave(size)  # (4 H,)
        w_x, w_h = (half[:, None] * w[order] for w in (self.weight_ih, self.weight_hh))
        gates_from = gates_of(w_x, w_h, half * self.bias[order], inputs)

        def step(x: np.ndarray, state: Arrays) -> Arrays:
            h, c = state
            gates = gates_from(x, h)  # (B, 4 H)
            np.tanh(gates, out=gates)
            sigma, g = gates[:, : 3 * size], gates[:, 3 * size :]
            sigma *= 0.5
            sigma += 0.5
            i, f, o = sigma[:, :size], sigma[:, size : 2 * size], sigma[:, 2 * size :]
            c = f * c + i * g
            return o * np.tanh(c), c

        return step

    def sequence(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        past = [part[None] for part in state]
        weights = [self.weight_ih, self.weight_hh, self.bias, torch.zeros_like(self.bias)]
        with kernel_arithmetic(x.device):
            y, h, c = torch.lstm(x, past, weights, True, 1, 0.0, self.training, False, True)
        return y, (h[0], c[0])


class LSTM(RecurrentLM):
    """The registry's `lstm`."""

    layer = LSTMLayer
