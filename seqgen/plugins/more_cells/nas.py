"""Recurrent cell found by reinforcement learning (Zoph and Le 2017)."""

from __future__ import annotations

from typing import Any, ClassVar

from seqgen.engines.ops import Ops
from seqgen.models.recurrent.cells.equation import Equation
from seqgen.models.recurrent.settings import RecurrentConfig


class NAS(Equation):
    """NAS cell of the paper's figure 8, a tree with eight leaves.

    With x_k = W_xk x_t + b_k and u_k = W_hk h_{t-1}, each leaf reads one of both:

    a_1 = sigma(x_1 + u_1), a_3 = sigma(x_3 + u_3), a_6 = sigma(x_6 + u_6), a_8 = sigma(x_8 + u_8)
    a_5 = tanh(x_5 + u_5), a_7 = tanh(x_7 + u_7), a_2 = relu(x_2 + u_2), a_4 = relu(x_4 * u_4)

    c_t = tanh(tanh(a_1 * a_2) + c_{t-1}) * tanh(a_3 + a_4)
    h_t = tanh(c_t * tanh(tanh(a_5 * a_6) + sigma(a_7 + a_8)))

    Blocks lie in the order 1, 3, 6, 8, 5, 7, 2, 4.
    """

    inputs = 8
    parts = "h", "c"
    has_update = True

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        sigmoid, tanh = ops.sigmoid, ops.tanh
        x_sum, x_2, x_4 = ops.split(x, 6, 1, 1)
        u_sum, u_2, u_4 = ops.split(w.hh(h), 6, 1, 1)
        of_sums = ops.gates(x_sum + u_sum, *[sigmoid] * 4, *[tanh] * 2)
        a_1, a_3, a_6, a_8, a_5, a_7 = of_sums
        a_2, a_4 = ops.relu(x_2 + u_2), ops.relu(x_4 * u_4)
        ops.show(a_1=a_1, a_2=a_2, a_3=a_3, a_4=a_4, a_5=a_5, a_6=a_6, a_7=a_7, a_8=a_8)
        new = w.dropped(tanh(a_1 * a_2))
        c = tanh(new + c) * tanh(a_3 + a_4)
        return tanh(c * tanh(tanh(a_5 * a_6) + sigmoid(a_7 + a_8))), c


class NASConfig(RecurrentConfig):
    """Configuration of a stack of NAS layers."""

    equation: ClassVar[type[Equation]] = NAS
