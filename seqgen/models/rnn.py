"""Elman's recurrent network (Elman 1990), and the ReLU network of Le, Jaitly and Hinton (2015)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.configs import setting
from seqgen.models.arrays import Arrays, ArrayStep, gates_of
from seqgen.models.bptt import ElmanRecurrence
from seqgen.models.precision import kernel_arithmetic, trains_on_cpu
from seqgen.models.recurrent import LayerState, RecurrentConfig, RecurrentLayer, RecurrentLM


@dataclass(frozen=True, kw_only=True)
class RNNConfig(RecurrentConfig):
    """An Elman network."""

    recipe: ClassVar[Mapping[str, Any]] = {**RecurrentConfig.recipe, "lr": 5e-3}

    activation: Literal["tanh", "relu"] = setting(
        "Activation; relu starts the recurrent matrix at the identity (Le et al. 2015).", "tanh"
    )


class RNNLayer(RecurrentLayer):
    """h_t = phi(W_xh x_t + W_hh h_{t-1} + b).

    With phi = ReLU, W_hh begins as the identity (IRNN; Le, Jaitly and Hinton 2015).
    """

    gates = 1

    def __init__(self, input_size: int, config: RNNConfig) -> None:
        super().__init__(input_size, config)
        self.activation = config.activation
        if config.activation == "relu":
            nn.init.eye_(self.weight_hh)

    def step(self, x: Tensor, state: LayerState) -> LayerState:
        (h,) = state
        phi = torch.tanh if self.activation == "tanh" else torch.relu
        return (phi(x @ self.weight_ih.T + h @ self.weight_hh.T + self.bias),)

    def array_step(self, inputs: Tensor | None) -> ArrayStep:
        sum_of = gates_of(self.weight_ih, self.weight_hh, self.bias, inputs)
        tanh = self.activation == "tanh"

        def step(x: np.ndarray, state: Arrays) -> Arrays:
            a = sum_of(x, state[0])  # (B, H)
            return (np.tanh(a) if tanh else np.maximum(a, 0),)

        return step

    def sequence(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        if trains_on_cpu(x):
            from_input = F.linear(x.transpose(0, 1), self.weight_ih, self.bias)  # (T, B, H)
            weight = self.weight_hh.to(from_input.dtype)
            y = ElmanRecurrence.apply(from_input, weight, state[0], self.activation)
            return y.transpose(0, 1), (y[-1].to(state[0].dtype),)
        kernel = torch.rnn_tanh if self.activation == "tanh" else torch.rnn_relu
        weights = [self.weight_ih, self.weight_hh, self.bias, torch.zeros_like(self.bias)]
        with kernel_arithmetic(x.device):
            y, h = kernel(x, state[0][None], weights, True, 1, 0.0, self.training, False, True)
        return y, (h[0],)


class RNN(RecurrentLM):
    """The registry's `rnn`."""

    layer = RNNLayer
