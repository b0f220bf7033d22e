"""The gated recurrent unit, in its two published forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.configs import setting
from seqgen.models.engines.ops import Ops
from seqgen.models.engines.precision import kernel_arithmetic, trains_on_cpu
from seqgen.models.recurrent.bptt import GRURecurrence
from seqgen.models.recurrent.cells.cell import Cell, LayerState
from seqgen.models.recurrent.cells.noise import Noise
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.linear_maps import Maps
from seqgen.models.recurrent.model import RecurrentLM


@dataclass(frozen=True, kw_only=True)
class GRUConfig(RecurrentConfig):
    """A stack of GRU layers."""

    reset: Literal["before", "after"] = setting(
        "Apply the reset gate before the recurrent product, W (r * h) (Cho et al. 2014), or after "
        "it, r * (W h) (the first version of that paper, and cuDNN).",
        "after",
    )


class GRUCell(Cell):
    """The cell, with gates in the order r, z, n.

    r_t = sigma(W_xr x_t + W_hr h_{t-1} + b_r)
    z_t = sigma(W_xz x_t + W_hz h_{t-1} + b_z)
    n_t = tanh(W_xn x_t + b_n + W_hn (r_t * h_{t-1}))            reset before (Cho et al. 2014)
    n_t = tanh(W_xn x_t + b_n + r_t * (W_hn h_{t-1} + b_hn))     reset after (cuDNN, PyTorch)
    h_t = (1 - z_t) * n_t + z_t * h_{t-1}

    Only the second form has the bias b_hn.
    """

    inputs = 3
    has_update = True
    keeps = "z"
    resets = "r"

    def __init__(self, input_size: int, config: GRUConfig) -> None:
        super().__init__(input_size, config)
        after = config.reset == "after"
        self.bias_hn = nn.Parameter(torch.zeros(config.hidden_size)) if after else None

    def maps_of_past(self) -> Maps:
        if self.bias_hn is not None:
            return {"hh": (self.weight_hh, self._bias_hh())}
        of_gates, of_candidate = self.weight_hh.split([2 * self.hidden_size, self.hidden_size])
        return {"gates": (of_gates, None), "candidate": (of_candidate, None)}

    def _bias_hh(self) -> Tensor:
        return F.pad(self.bias_hn, (2 * self.hidden_size, 0))  # (3 H,), of r and z none

    def equation(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        x_gates, x_n = ops.split(x, 2, 1)  # (B, 2 H), (B, H)
        if self.bias_hn is None:
            r, z = ops.gates(w.gates(h, x_gates), ops.sigmoid, ops.sigmoid)
            n = ops.tanh(w.candidate(r * h, x_n))
        else:
            of_gates, of_n = ops.split(w.hh(h), 2, 1)
            r, z = ops.gates(x_gates + of_gates, ops.sigmoid, ops.sigmoid)
            n = ops.tanh(x_n + r * of_n)
        ops.show(r=r, z=z, n=n)
        n = w.dropped(n)
        return (n + z * (h - n),)

    def fast_sequence(
        self, x: Tensor, state: LayerState, noise: Noise
    ) -> tuple[Tensor, LayerState] | None:
        if self.bias_hn is None:  # no kernel has the form of 2014
            return None
        of_past, bias = noise.maps["hh"]
        if trains_on_cpu(x):
            from_input = self.read_input(x.transpose(0, 1))  # (T, B, 3 H)
            y = GRURecurrence.apply(from_input, of_past.to(from_input.dtype), bias, state[0])
            return y.transpose(0, 1), (y[-1].to(state[0].dtype),)
        weights = [self.weight_ih, of_past, self.bias, bias]
        with kernel_arithmetic(x.device):
            y, h = torch.gru(x, state[0][None], weights, True, 1, 0.0, self.training, False, True)
        return y, (h[0],)


class GRU(RecurrentLM):
    """The registry's `gru`."""

    cell = GRUCell
