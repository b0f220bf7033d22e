"""The multiplicative LSTM (Krause et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seqgen.engines.ops import Ops
from seqgen.models.recurrent.cells.equation import ORTHOGONAL, Equation, Maps, Parameter
from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.settings import ranges, setting


class MLSTM(Equation):
    """Multiplicative LSTM: the recurrent map depends on the input; blocks m, i, f, g, o.

    m_t = (W_xm x_t + b_m) * (W_hm h_{t-1})
    i_t = sigma(W_xi x_t + W_mi m_t + b_i)
    f_t = sigma(W_xf x_t + W_mf m_t + b_f)
    g_t = tanh(W_xg x_t + W_mg m_t + b_g)
    o_t = sigma(W_xo x_t + W_mo m_t + b_o)
    c_t = f_t * c_{t-1} + i_t * g_t
    h_t = o_t * tanh(c_t)
    """

    inputs = 5
    parts = "h", "c"
    has_update = True
    keeps = "f"

    def biases(self) -> Parameter:
        return self.vector(0.0, 0.0, self.config.forget_bias, 0.0, 0.0)

    def recurrent(self) -> dict[str, Parameter]:
        blocks = {"weight_hm": 1, "weight_mh": 4}
        return {n: self.matrix(count, self.hidden_size, ORTHOGONAL) for n, count in blocks.items()}

    def maps_of_past(self, ops: Ops, p: Any) -> Maps:
        return {"hm": (p.weight_hm, None), "gates": (p.weight_mh, None)}

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        x_m, x_gates = ops.split(x, 1, 4)
        m = x_m * w.hm(h)
        i, f, g, o = ops.gates(w.gates(m, x_gates), ops.sigmoid, ops.sigmoid, ops.tanh, ops.sigmoid)
        ops.show(m=m, i=i, f=f, g=g, o=o)
        c = f * c + i * w.dropped(g)
        return o * ops.tanh(c), c


@dataclass(frozen=True, kw_only=True)
class MLSTMConfig(RecurrentConfig):
    """Configuration of a stack of multiplicative LSTM layers."""

    equation: ClassVar[type[Equation]] = MLSTM

    forget_bias: float = setting(
        "Initial bias of the forget gate (Jozefowicz et al. 2015).", 1.0, ranges.SIGNED_TO_1000
    )
