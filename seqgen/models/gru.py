"""The gated recurrent unit, in its two published forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

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
class GRUConfig(RecurrentConfig):
    """A stack of GRU layers."""

    reset: Literal["before", "after"] = setting(
        "r applies before W_hn's product (Cho et al. 2014) or after (cuDNN)", "after"
    )


class GRULayer(RecurrentLayer):
    """The cell, with gates in the order r, z, n.

    r_t = sigma(W_xr x_t + W_hr h_{t-1} + b_r)
    z_t = sigma(W_xz x_t + W_hz h_{t-1} + b_z)
    n_t = tanh(W_xn x_t + b_n + W_hn (r_t * h_{t-1}))            reset before (Cho et al. 2014)
    n_t = tanh(W_xn x_t + b_n + r_t * (W_hn h_{t-1} + b_hn))     reset after (cuDNN, PyTorch)
    h_t = (1 - z_t) * n_t + z_t * h_{t-1}

    Only the second form has the bias b_hn.
    """

    gates = 3

    def __init__(self, input_size: int, config: GRUConfig) -> None:
        super().__init__(input_size, config)
        after = config.reset == "after"
        self.bias_hn = nn.Parameter(torch.zeros(config.hidden_size)) if after else None

    def step(self, x: Tensor, state: LayerState) -> LayerState:
        return (self._cell(torch.addmm(self.bias, x, self.weight_ih.T), state[0]),)

    def array_step(self, first: bool) -> ArrayStep:
        size = self.hidden_size
        of_input = np.ascontiguousarray(self.weight_ih.detach().numpy().T)  # (E, 3 H)
        of_past = np.ascontiguousarray(self.weight_hh.detach().numpy().T)  # (H, 3 H)
        of_gates, of_candidate = of_past[:, : 2 * size].copy(), of_past[:, 2 * size :].copy()
        bias = self.bias.detach().numpy().copy()
        bias_hn = None if self.bias_hn is None else self.bias_hn.detach().numpy().copy()

        def step(x: np.ndarray, state: Arrays) -> Arrays:
            (h,) = state
            x = x if first else x @ of_input + bias  # (B, 3 H)
            if bias_hn is None:
                # sigma(a) = (1 + tanh(a / 2)) / 2, which overflows nowhere.
                r_z = 0.5 * np.tanh(0.5 * (x[:, : 2 * size] + h @ of_gates)) + 0.5
                n = np.tanh(x[:, 2 * size :] + (r_z[:, :size] * h) @ of_candidate)
            else:
                past = h @ of_past  # (B, 3 H)
                r_z = 0.5 * np.tanh(0.5 * (x[:, : 2 * size] + past[:, : 2 * size])) + 0.5
                n = np.tanh(x[:, 2 * size :] + r_z[:, :size] * (past[:, 2 * size :] + bias_hn))
            return (n + r_z[:, size:] * (h - n),)

        return step

    def sequence(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        if self.bias_hn is None:  # no kernel has the form of 2014
            return self._unrolled(x, state[0])
        no_bias = torch.zeros_like(self.bias[: 2 * self.hidden_size])
        bias_hh = torch.cat([no_bias, self.bias_hn])
        weights = [self.weight_ih, self.weight_hh, self.bias, bias_hh]
        y, h = torch.gru(x, state[0][None], weights, True, 1, 0.0, self.training, False, True)
        return y, (h[0],)

    def _unrolled(self, x: Tensor, h: Tensor) -> tuple[Tensor, LayerState]:
        from_input = x @ self.weight_ih.T + self.bias  # (B, T, 3 H)
        outputs = []
        for gates in from_input.unbind(1):
            h = self._cell(gates, h)
            outputs.append(h)
        return torch.stack(outputs, 1), (h,)

    def _cell(self, from_input: Tensor, h: Tensor) -> Tensor:
        size = self.hidden_size
        of_gates, of_candidate = self.weight_hh.split([2 * size, size])
        xr_xz, xn = from_input.split([2 * size, size], dim=-1)  # (B, 2 H), (B, H)
        r, z = torch.addmm(xr_xz, h, of_gates.T).sigmoid().chunk(2, dim=-1)  # (B, H) each
        if self.bias_hn is None:
            n = torch.addmm(xn, r * h, of_candidate.T).tanh()
        else:
            n = (xn + r * torch.addmm(self.bias_hn, h, of_candidate.T)).tanh()
        return n + z * (h - n)  # (1 - z) * n + z * h


class GRU(RecurrentLM):
    """The registry's `gru`."""

    layer = GRULayer
