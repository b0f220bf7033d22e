"""Long short-term memory (Hochreiter and Schmidhuber 1997; forget gate: Gers et al. 2000)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqgen.configs import setting
from seqgen.models.recurrent import (
    Arrays,
    ArrayStep,
    LayerState,
    RecurrentConfig,
    RecurrentLayer,
    RecurrentLM,
)


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

    def array_step(self, first: bool) -> ArrayStep:
        size = self.hidden_size
        # sigma(a) = (1 + tanh(a / 2)) / 2, so that one tanh does for all gates: halving is exact.
        half = np.repeat([0.5, 0.5, 1, 0.5], size).astype(self.bias.detach().numpy().dtype)
        past = self.weight_hh.detach().numpy()
        matrix = past if first else np.hstack([self.weight_ih.detach().numpy(), past])
        matrix = np.ascontiguousarray((half[:, None] * matrix).T)  # (H, 4 H) or (E + H, 4 H)
        bias = half * self.bias.detach().numpy()

        def step(x: np.ndarray, state: Arrays) -> Arrays:
            h, c = state
            gates = half * x + h @ matrix if first else np.hstack([x, h]) @ matrix + bias
            np.tanh(gates, out=gates)
            i_f, g, o = gates[:, : 2 * size], gates[:, 2 * size : 3 * size], gates[:, 3 * size :]
            i_f = 0.5 * i_f + 0.5  # (B, 2 H)
            c = i_f[:, size:] * c + i_f[:, :size] * g
            return (0.5 * o + 0.5) * np.tanh(c), c

        return step

    def sequence(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        past = [part[None] for part in state]
        weights = [self.weight_ih, self.weight_hh, self.bias, torch.zeros_like(self.bias)]
        y, h, c = torch.lstm(x, past, weights, True, 1, 0.0, self.training, False, True)
        return y, (h[0], c[0])


class LSTM(RecurrentLM):
    """The registry's `lstm`."""

    layer = LSTMLayer
