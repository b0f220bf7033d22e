"""Elman's recurrent network (Elman 1990), and the ReLU network of Le, Jaitly and Hinton (2015)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from seqgen.configs import ranges, setting
from seqgen.models.engines.ops import Ops
from seqgen.models.engines.precision import kernel_arithmetic, trains_on_cpu
from seqgen.models.recurrent.cells.cell import Cell, LayerState
from seqgen.models.recurrent.cells.noise import Noise
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.model import RecurrentLM

# phi' where phi has the value h.
SLOPES = {
    "tanh": lambda h: 1 - h**2,
    "relu": lambda h: (h > 0).to(h.dtype),
    "sigmoid": lambda h: h * (1 - h),
}
KERNELS = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu}


@dataclass(frozen=True, kw_only=True)
class RNNConfig(RecurrentConfig):
    """An Elman network."""

    recipe: ClassVar[Mapping[str, Any]] = {**RecurrentConfig.recipe, "lr": 5e-3}

    activation: Literal["tanh", "relu", "sigmoid"] = setting(
        "Activation; relu starts the recurrent matrix at the identity (Le et al. 2015), sigmoid is "
        "Elman's own.",
        "tanh",
    )
    recurrent_gain: float = setting(
        "Factor of the initial recurrent matrix, which is orthogonal, or the identity for relu: "
        "far from 1, gradients through time vanish or explode (docs/diagnose.md).",
        1.0,
        ranges.UP_TO_1000,
    )


class RNNCell(Cell):
    """h_t = phi(W_xh x_t + W_hh h_{t-1} + b).

    With phi = ReLU, W_hh begins as the identity (IRNN; Le, Jaitly and Hinton 2015).
    """

    inputs = 1

    def __init__(self, input_size: int, config: RNNConfig) -> None:
        super().__init__(input_size, config)
        self.activation = config.activation
        if config.activation == "relu":
            nn.init.eye_(self.weight_hh)
        with torch.no_grad():
            self.weight_hh.mul_(config.recurrent_gain)

    def equation(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        return (getattr(ops, self.activation)(w.hh(h, x)),)

    def slope(self, h: Tensor) -> Tensor | None:
        return None if self.zones_out else SLOPES[self.activation](h)

    def fast_sequence(
        self, x: Tensor, state: LayerState, noise: Noise
    ) -> tuple[Tensor, LayerState] | None:
        kernel = KERNELS.get(self.activation)
        if kernel is None or trains_on_cpu(x):
            return None
        of_past, _ = noise.maps["hh"]
        weights = [self.weight_ih, of_past, self.bias, torch.zeros_like(self.bias)]
        with kernel_arithmetic(x.device):
            y, h = kernel(x, state[0][None], weights, True, 1, 0.0, self.training, False, True)
        return y, (h[0],)


class RNN(RecurrentLM):
    """The registry's `rnn`."""

    cell = RNNCell
