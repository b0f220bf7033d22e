"""MUT1, the first of three cells that a search found (Jozefowicz et al. 2015)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.models.engines.onednn_linear import linear
from seqgen.models.engines.ops import Ops
from seqgen.models.recurrent.cells.cell import Cell
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.linear_maps import Maps
from seqgen.models.recurrent.model import RecurrentLM


class MUT1Cell(Cell):
    """The cell, with blocks in the order z, r, and those of the past in the order r, n.

    z_t = sigma(W_xz x_t + b_z)
    r_t = sigma(W_xr x_t + W_hr h_{t-1} + b_r)
    n_t = tanh(W_hn (r_t * h_{t-1}) + tanh(x_t) + b_n)
    h_t = z_t * n_t + (1 - z_t) * h_{t-1}

    An input that is not H wide is mapped to H units where x_t stands by itself.
    """

    inputs = 2
    has_update = True
    reads_itself = True
    replaces = "z"
    resets = "r"

    def __init__(self, input_size: int, config: RecurrentConfig) -> None:
        super().__init__(input_size, config)
        self.weight_in = self.map_to_width(input_size, config.hidden_size)
        self.bias_n = nn.Parameter(torch.zeros(config.hidden_size))

    def map_of_input(self) -> tuple[Tensor, Tensor]:
        itself = self.matrix_to_width(self.weight_in, self.hidden_size)
        return torch.cat([self.weight_ih, itself]), F.pad(self.bias, (0, self.hidden_size))

    def read_input(self, x: Tensor) -> Tensor:
        if self.weight_in is not None:
            return super().read_input(x)
        of_gates = linear(x, self.weight_ih, self.bias)
        return torch.cat([of_gates, x.to(of_gates.dtype)], -1)  # no product with the identity

    def maps_of_past(self) -> Maps:
        of_reset, of_candidate = self.weight_hh.chunk(2)
        return {"reset": (of_reset, None), "candidate": (of_candidate, self.bias_n)}

    def equation(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        x_z, x_r, itself = ops.split(x, 1, 1, 1)
        z, r = ops.sigmoid(x_z), ops.sigmoid(w.reset(h, x_r))
        n = ops.tanh(w.candidate(r * h, ops.tanh(itself)))
        ops.show(z=z, r=r, n=n)
        n = w.dropped(n)
        return (h + z * (n - h),)


class MUT1(RecurrentLM):
    """The registry's `mut1`."""

    cell = MUT1Cell
