"""MUT2, the second of three cells that a search found (Jozefowicz et al. 2015)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from seqgen.models.engines.onednn_linear import linear
from seqgen.models.engines.ops import Ops
from seqgen.models.recurrent.cells.cell import Cell
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.linear_maps import Maps
from seqgen.models.recurrent.model import RecurrentLM


class MUT2Cell(Cell):
    """The cell, with blocks in the order z, n, and those of the past in the order z, r, n.

    z_t = sigma(W_xz x_t + W_hz h_{t-1} + b_z)
    r_t = sigma(x_t + W_hr h_{t-1} + b_r)
    n_t = tanh(W_hn (r_t * h_{t-1}) + W_xn x_t + b_n)
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
        self.bias_r = nn.Parameter(torch.zeros(config.hidden_size))

    def make_recurrent(self, config: RecurrentConfig) -> None:
        self.weight_hh = self.stack("weight_hh", 3, config.hidden_size, nn.init.orthogonal_)

    def map_of_input(self) -> tuple[Tensor, Tensor]:
        (of_z, of_n), (b_z, b_n) = self.weight_ih.chunk(2), self.bias.chunk(2)
        itself = self.matrix_to_width(self.weight_in, self.hidden_size)
        return torch.cat([of_z, itself, of_n]), torch.cat([b_z, self.bias_r, b_n])

    def read_input(self, x: Tensor) -> Tensor:
        if self.weight_in is not None:
            return super().read_input(x)
        of_z, of_n = linear(x, self.weight_ih, self.bias).chunk(2, -1)
        itself = (x + self.bias_r).to(of_z.dtype)  # no product with the identity
        return torch.cat([of_z, itself, of_n], -1)

    def maps_of_past(self) -> Maps:
        of_gates, of_candidate = self.weight_hh.split([2 * self.hidden_size, self.hidden_size])
        return {"gates": (of_gates, None), "candidate": (of_candidate, None)}

    def equation(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        x_gates, x_n = ops.split(x, 2, 1)
        z, r = ops.gates(w.gates(h, x_gates), ops.sigmoid, ops.sigmoid)
        n = ops.tanh(w.candidate(r * h, x_n))
        ops.show(z=z, r=r, n=n)
        n = w.dropped(n)
        return (h + z * (n - h),)


class MUT2(RecurrentLM):
    """The registry's `mut2`."""

    cell = MUT2Cell
