"""Jordan's recurrent network (1986), which feeds back its own predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from seqgen.engines.ops import Ops
from seqgen.models.recurrent.cells.equation import GLOROT, ORTHOGONAL, Equation, Maps, Parameter
from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.settings import ranges, require, setting


class Jordan(Equation):
    """Jordan cell: reads a decaying sum of the V probabilities predicted so far.

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
    of_head = MappingProxyType({"weight_out": "weight", "bias_out": "bias"})

    @classmethod
    def widths(cls, config: JordanConfig) -> tuple[int, int]:
        return config.hidden_size, config.vocab_size

    def recurrent(self) -> dict[str, Parameter]:
        return {"weight_hs": self.matrix(1, self.config.vocab_size, ORTHOGONAL)}

    def more(self) -> dict[str, Parameter]:
        size = self.config.vocab_size
        of_h = Parameter((size, self.hidden_size), GLOROT, (size,))
        return {"weight_out": of_h, "bias_out": Parameter((size,))}

    def maps_of_past(self, ops: Ops, p: Any) -> Maps:
        return {"hs": (p.weight_hs, None), "out": (p.weight_out, p.bias_out)}

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any, s: Any) -> tuple[Any, Any]:
        h = getattr(ops, self.config.activation)(w.hs(s, x))
        return h, self.config.decay * s + ops.softmax(w.out(h))


@dataclass(frozen=True, kw_only=True)
class JordanConfig(RecurrentConfig):
    """Configuration of a stack of Jordan layers."""

    equation: ClassVar[type[Equation]] = Jordan

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
