"""Long short-term memory (Hochreiter and Schmidhuber 1997; forget gate: Gers et al. 2000)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqgen.configs import setting
from seqgen.models.recurrent import LayerState, RecurrentConfig, RecurrentLayer, RecurrentLM


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(RecurrentConfig):
    """A stack of LSTM layers."""

    forget_bias: float = setting("where the forget gate's bias starts (Jozefowicz 2015)", 1.0)


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

    def sequence(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        past = [part[None] for part in state]
        weights = [self.weight_ih, self.weight_hh, self.bias, torch.zeros_like(self.bias)]
        y, h, c = torch.lstm(x, past, weights, True, 1, 0.0, self.training, False, True)
        return y, (h[0], c[0])


class LSTM(RecurrentLM):
    """The registry's `lstm`."""

    layer = LSTMLayer
