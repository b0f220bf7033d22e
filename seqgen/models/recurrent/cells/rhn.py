"""The recurrent highway network (Zilly et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from seqgen.configs import ranges, setting
from seqgen.models.engines.ops import Ops
from seqgen.models.recurrent.cells.cell import Cell
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.linear_maps import Maps
from seqgen.models.recurrent.model import RecurrentLM


@dataclass(frozen=True, kw_only=True)
class RHNConfig(RecurrentConfig):
    """A stack of recurrent highway layers."""

    depth: int = setting("Number of highway layers from one step to the next.", 2, ranges.LAYERS)
    transform_bias: float = setting(
        "Initial bias of the transform gates: how little of the past is replaced.",
        -2.0,
        ranges.SIGNED_TO_1000,
    )


class RHNCell(Cell):
    """The cell of depth L with coupled gates, with blocks in the order n, t.

    From s_0 = h_{t-1}, for l = 1 ... L, where the input stands in the first layer alone:

    n_l = tanh(W_n x_t + R_nl s_{l-1} + b_nl)
    t_l = sigma(W_t x_t + R_tl s_{l-1} + b_tl)
    s_l = n_l * t_l + s_{l-1} * (1 - t_l)

    and h_t = s_L.
    """

    inputs = 2
    has_update = True

    def __init__(self, input_size: int, config: RHNConfig) -> None:
        super().__init__(input_size, config)
        for layer in range(2, config.depth + 1):
            setattr(self, f"bias_{layer}", nn.Parameter(torch.zeros_like(self.bias)))
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.startswith("bias"):
                    parameter.chunk(2)[1].fill_(config.transform_bias)

    def make_recurrent(self, config: RHNConfig) -> None:
        super().make_recurrent(config)
        self.depth = config.depth
        for layer in range(2, config.depth + 1):
            name = f"weight_hh_{layer}"
            setattr(self, name, self.stack(name, 2, config.hidden_size, nn.init.orthogonal_))

    def maps_of_past(self) -> Maps:
        maps = {"hh": (self.weight_hh, None)}
        for layer in range(2, self.depth + 1):
            weight, bias = getattr(self, f"weight_hh_{layer}"), getattr(self, f"bias_{layer}")
            maps[f"hh_{layer}"] = weight, bias
        return maps

    def equation(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        n, t = ops.gates(w.hh(h, x), ops.tanh, ops.sigmoid)
        ops.show(n_1=n, t_1=t)
        h = h + t * (w.dropped(n) - h)
        for layer in range(2, self.depth + 1):
            n, t = ops.gates(getattr(w, f"hh_{layer}")(h), ops.tanh, ops.sigmoid)
            ops.show(**{f"n_{layer}": n, f"t_{layer}": t})
            h = h + t * (w.dropped(n) - h)
        return (h,)


class RHN(RecurrentLM):
    """The registry's `rhn`."""

    cell = RHNCell
