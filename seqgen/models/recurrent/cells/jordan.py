"""Jordan's recurrent network (1986): it reads back its own predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from seqgen.configs import ranges, require, setting
from seqgen.models.engines.ops import Ops
from seqgen.models.recurrent.cells.cell import Cell
from seqgen.models.recurrent.config import RecurrentConfig
from seqgen.models.recurrent.linear_maps import Maps
from seqgen.models.recurrent.model import RecurrentLM


@dataclass(frozen=True, kw_only=True)
class JordanConfig(RecurrentConfig):
    """A stack of Jordan's layers."""

    recipe: ClassVar[Mapping[str, Any]] = {**RecurrentConfig.recipe, "lr": 5e-3}

    activation: Literal["tanh", "sigmoid"] = setting("Activation of the units.", "tanh")
    decay: float = setting(
        "Share of the state that stays when an output is added to it; with 0 only the last output "
        "is read back.",
        0.5,
        ranges.SHARES_BELOW_1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.one_width, "every layer of jordan reads the head back: leave last_size out")


class JordanCell(Cell):
    """Units that read back a decaying sum of the distributions predicted so far, V numbers.

    h_t = phi(W_x x_t + W_s s_{t-1} + b)
    y_t = softmax(W_y h_t + b_y)
    s_t = mu s_{t-1} + y_t

    In a language model W_y and b_y are those of the head. In a stack, each layer applies the head
    to its own h, and reads back the result.
    """

    inputs = 1
    parts = "h", "s"
    readouts = frozenset({"out"})
    passing = frozenset({"h"})

    def __init__(self, input_size: int, config: JordanConfig) -> None:
        super().__init__(input_size, config)
        self.activation, self.decay = config.activation, config.decay
        weight = torch.empty(config.vocab_size, config.hidden_size)
        self.weight_out = nn.Parameter(nn.init.xavier_uniform_(weight))
        self.bias_out = nn.Parameter(torch.zeros(config.vocab_size))

    @classmethod
    def widths(cls, config: JordanConfig) -> tuple[int, int]:
        return config.hidden_size, config.vocab_size

    def make_recurrent(self, config: JordanConfig) -> None:
        self.weight_hs = self.stack("weight_hs", 1, config.vocab_size, nn.init.orthogonal_)

    def maps_of_past(self) -> Maps:
        return {"hs": (self.weight_hs, None), "out": (self.weight_out, self.bias_out)}

    def equation(self, ops: Ops, w: Any, x: Any, h: Any, s: Any) -> tuple[Any, Any]:
        h = getattr(ops, self.activation)(w.hs(s, x))
        return h, self.decay * s + ops.softmax(w.out(h))


class Jordan(RecurrentLM):
    """The registry's `jordan`."""

    cell = JordanCell

    def __init__(self, config: JordanConfig) -> None:
        super().__init__(config)
        for layer in self.layers:
            layer.weight_out, layer.bias_out = self.head.weight, self.head.bias
