"""Elman's recurrent network (Elman 1990), and the ReLU network of Le, Jaitly and Hinton (2015)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqgen.engines.ops import Leaf, Ops, ops_of
from seqgen.models.recurrent.cells.equation import IDENTITY, ORTHOGONAL, Equation, Parameter, Parts
from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.settings import ranges, setting

# phi' where phi has the value h.
SLOPES = {
    "tanh": lambda h: 1 - h**2,
    "relu": lambda h: ops_of(h).like(h > 0, h),
    "sigmoid": lambda h: h * (1 - h),
}


class RNN(Equation):
    """Elman cell: h_t = phi(W_xh x_t + W_hh h_{t-1} + b).

    With phi = ReLU, W_hh begins as the identity (IRNN; Le, Jaitly and Hinton 2015).
    """

    inputs = 1

    def recurrent(self) -> dict[str, Parameter]:
        begin = IDENTITY if self.config.activation == "relu" else ORTHOGONAL
        gain = self.config.recurrent_gain
        return {"weight_hh": self.matrix(1, self.hidden_size, begin, gain)}

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        return (getattr(ops, self.config.activation)(w.hh(h, x)),)

    def slope(self, h: Leaf) -> Leaf | None:
        return None if self.zones_out else SLOPES[self.config.activation](h)

    def fast_sequence(
        self, cell: Any, x: Leaf, state: Parts, noise: Any
    ) -> tuple[Leaf, Parts] | None:
        import torch

        from seqgen.engines.fast_layers import trains_on_cpu
        from seqgen.engines.precision import kernel_arithmetic

        kernels = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu}
        kernel = kernels.get(self.config.activation)
        if kernel is None or trains_on_cpu(x):
            return None
        of_past, _ = noise.maps["hh"]
        weights = [cell.weight_ih, of_past, cell.bias, torch.zeros_like(cell.bias)]
        with kernel_arithmetic(x.device):
            y, h = kernel(x, state[0][None], weights, True, 1, 0.0, cell.training, False, True)
        return y, (h[0],)


@dataclass(frozen=True, kw_only=True)
class RNNConfig(RecurrentConfig):
    """Configuration of a stack of Elman layers."""

    equation: ClassVar[type[Equation]] = RNN

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
