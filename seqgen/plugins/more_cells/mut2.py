"""MUT2, one of three recurrent cells found by a search (Jozefowicz et al. 2015)."""

from __future__ import annotations

from typing import Any, ClassVar

from seqgen.engines.ops import Leaf, Ops
from seqgen.models.recurrent.cells.equation import ORTHOGONAL, Equation, Linear, Maps, Parameter
from seqgen.models.recurrent.settings import RecurrentConfig


class MUT2(Equation):
    """MUT2 cell, with input blocks z, n and recurrent blocks z, r, n.

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

    def recurrent(self) -> dict[str, Parameter]:
        return {"weight_hh": self.matrix(3, self.hidden_size, ORTHOGONAL)}

    def more(self) -> dict[str, Parameter]:
        return {**self.map_to_width(self.input_size, self.hidden_size), "bias_r": self.vector(0.0)}

    def map_of_input(self, ops: Ops, p: Any) -> tuple[Leaf, Leaf]:
        (of_z, of_n), (b_z, b_n) = ops.cut(p.weight_ih, 1, 1), ops.cut(p.bias, 1, 1)
        itself = self.matrix_to_width(ops, p, self.hidden_size)
        return ops.along(0, of_z, itself, of_n), ops.join(b_z, p.bias_r, b_n)

    def read_input(self, ops: Ops, p: Any, x: Leaf, linear: Linear) -> Leaf:
        if self.input_size != self.hidden_size:
            return super().read_input(ops, p, x, linear)
        of_z, of_n = ops.split(linear(x, p.weight_ih, p.bias), 1, 1)
        return ops.join(of_z, ops.like(x + p.bias_r, of_z), of_n)  # no product with the identity

    def maps_of_past(self, ops: Ops, p: Any) -> Maps:
        of_gates, of_candidate = ops.cut(p.weight_hh, 2, 1)
        return {"gates": (of_gates, None), "candidate": (of_candidate, None)}

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        x_gates, x_n = ops.split(x, 2, 1)
        z, r = ops.gates(w.gates(h, x_gates), ops.sigmoid, ops.sigmoid)
        n = ops.tanh(w.candidate(r * h, x_n))
        ops.show(z=z, r=r, n=n)
        n = w.dropped(n)
        return (h + z * (n - h),)


class MUT2Config(RecurrentConfig):
    """Configuration of a stack of MUT2 layers."""

    equation: ClassVar[type[Equation]] = MUT2
