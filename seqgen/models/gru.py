"""The gated recurrent unit, in its two published forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.configs import setting
from seqgen.models.arrays import Affine, Arrays, ArrayStep, input_map
from seqgen.models.bptt import GRURecurrence
from seqgen.models.precision import kernel_arithmetic, trains_on_cpu
from seqgen.models.recurrent import LayerState, RecurrentConfig, RecurrentLayer, RecurrentLM


@dataclass(frozen=True, kw_only=True)
class GRUConfig(RecurrentConfig):
    """A stack of GRU layers."""

    reset: Literal["before", "after"] = setting(
        "Apply the reset gate before the recurrent product (Cho et al. 2014) or after it (cuDNN).",
        "after",
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

    def array_step(self, inputs: Tensor | None) -> ArrayStep:
        size = self.hidden_size
        of_input = input_map(self.weight_ih, self.bias, inputs)
        if self.bias_hn is None:
            of_gates = Affine(self.weight_hh[: 2 * size], None)
            of_candidate = Affine(self.weight_hh[2 * size :], None)
        else:
            no_bias = torch.zeros_like(self.bias[: 2 * size])
            of_past = Affine(self.weight_hh, torch.cat([no_bias, self.bias_hn]))

        def step(x: np.ndarray, state: Arrays) -> Arrays:
            (h,) = state
            x = of_input(x)  # (B, 3 H)
            past = of_gates(h) if self.bias_hn is None else of_past(h)  # (B, 2 H) or (B, 3 H)
            # sigma(a) = (1 + tanh(a / 2)) / 2, which overflows nowhere.
            r_z = 0.5 * np.tanh(0.5 * (x[:, : 2 * size] + past[:, : 2 * size])) + 0.5
            r, z = r_z[:, :size], r_z[:, size:]
            candidate = of_candidate(r * h) if self.bias_hn is None else r * past[:, 2 * size :]
            n = np.tanh(x[:, 2 * size :] + candidate)
            return (n + z * (h - n),)

        return step

    def sequence(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        if self.bias_hn is None:  # no kernel has the form of 2014
            return self._unrolled(x, state[0])
        no_bias = torch.zeros_like(self.bias[: 2 * self.hidden_size])
        bias_hh = torch.cat([no_bias, self.bias_hn])
        if trains_on_cpu(x):
            from_input = F.linear(x.transpose(0, 1), self.weight_ih, self.bias)  # (T, B, 3 H)
            weight = self.weight_hh.to(from_input.dtype)
            y = GRURecurrence.apply(from_input, weight, bias_hh, state[0])
            return y.transpose(0, 1), (y[-1].to(state[0].dtype),)
        weights = [self.weight_ih, self.weight_hh, self.bias, bias_hh]
        with kernel_arithmetic(x.device):
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
