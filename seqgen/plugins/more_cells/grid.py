"""The Grid LSTM of two dimensions, time and depth (Kalchbrenner et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seqgen.engines.ops import Leaf, Ops
from seqgen.models.recurrent.cells.equation import GLOROT, ORTHOGONAL, Equation, Parameter
from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.settings import ranges, setting


class Grid(Equation):
    """Grid LSTM layer: one LSTM over time and one over depth, which both read both outputs.

    The input of a block is the pair [h'; m'] that comes from the layer below, and its output the
    pair that goes up. An input of another width than 2 H is first mapped to one.

    z = W_d h' + W_h h_{t-1} + b, for i, f, g and o of each dimension
    m_t = sigma(z_f) * m_{t-1} + sigma(z_i) * tanh(z_g)       h_t = tanh(sigma(z_o) * m_t)
    m'' = sigma(z'_f) * m' + sigma(z'_i) * tanh(z'_g)         h'' = tanh(sigma(z'_o) * m'')

    The output gate acts inside the tanh, as in the paper's equation 1; other LSTMs have it outside.
    Blocks lie in the order i, f, g, o of time, then those of depth.
    """

    inputs = 8
    parts = "up", "h", "m"
    has_update = True
    reads_itself = True
    keeps = "f"
    passing = frozenset({"up"})

    def parameters(self) -> dict[str, Parameter]:
        return super().parameters() | {"weight_ih": self.matrix(8, self.hidden_size, GLOROT)}

    def recurrent(self) -> dict[str, Parameter]:
        return {"weight_hh": self.matrix(8, self.hidden_size, ORTHOGONAL)}

    def biases(self) -> Parameter:
        return self.vector(*[0.0, self.config.forget_bias, 0.0, 0.0] * 2)

    def more(self) -> dict[str, Parameter]:
        return self.map_to_width(self.input_size, 2 * self.hidden_size)

    def map_of_input(self, ops: Ops, p: Any) -> tuple[Leaf, Leaf]:
        of_h, of_m = ops.cut(self.matrix_to_width(ops, p, 2 * self.hidden_size), 1, 1)
        weight = ops.along(0, p.weight_ih @ of_h, of_m)  # (9 H, E): of the gates, and m' itself
        return weight, ops.join(p.bias, ops.zeros(p.bias, self.hidden_size))

    def __call__(self, ops: Ops, w: Any, x: Any, up: Any, h: Any, m: Any) -> tuple[Any, Any, Any]:
        x_gates, m_up = ops.split(x, 8, 1)
        functions = ops.sigmoid, ops.sigmoid, ops.tanh, ops.sigmoid
        gates = ops.gates(w.hh(h, x_gates), *functions, *functions)
        (i, f, g, o), (i_up, f_up, g_up, o_up) = gates[:4], gates[4:]
        ops.show(i=i, f=f, g=g, o=o, i_up=i_up, f_up=f_up, g_up=g_up, o_up=o_up)
        m, m_up = f * m + i * w.dropped(g), f_up * m_up + i_up * g_up
        return ops.join(ops.tanh(o_up * m_up), m_up), ops.tanh(o * m), m


@dataclass(frozen=True, kw_only=True)
class GridConfig(RecurrentConfig):
    """Configuration of a stack of Grid LSTM layers."""

    equation: ClassVar[type[Equation]] = Grid

    forget_bias: float = setting(
        "Initial bias of the forget gates of both dimensions.", 1.0, ranges.SIGNED_TO_1000
    )

    @property
    def output_size(self) -> int:
        return 2 * self.hidden_size
