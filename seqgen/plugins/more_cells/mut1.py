"""MUT1, one of three recurrent cells found by a search (Jozefowicz et al. 2015)."""

from __future__ import annotations

from typing import Any, ClassVar

from seqgen.engines.ops import Leaf, Ops
from seqgen.models.recurrent.cells.equation import Equation, Linear, Maps, Parameter
from seqgen.models.recurrent.settings import RecurrentConfig


class MUT1(Equation):
    """MUT1 cell, with input blocks z, r and recurrent blocks r, n.

    z_t = sigma(W_xz x_t + b_z)
    r_t = sigma(W_xr x_t + W_hr h_{t-1} + b_r)
    n_t = tanh(W_hn (r_t * h_{t-1}) + tanh(x_t) + b_n)
    h_t = z_t * n_t + (1 - z_t) * h_{t-1}

    An input that is not H wide is mapped to H units where x_t stands by itself.
    """

    inputs = 2
    has_update = True
    reads_itself = True
    replaces = "z"
    resets = "r"

    def more(self) -> dict[str, Parameter]:
        return {**self.map_to_width(self.input_size, self.hidden_size), "bias_n": self.vector(0.0)}

    def map_of_input(self, ops: Ops, p: Any) -> tuple[Leaf, Leaf]:
        itself = self.matrix_to_width(ops, p, self.hidden_size)
        bias = ops.join(p.bias, ops.zeros(p.bias, self.hidden_size))
        return ops.along(0, p.weight_ih, itself), bias

    def read_input(self, ops: Ops, p: Any, x: Leaf, linear: Linear) -> Leaf:
        if self.input_size != self.hidden_size:
            return super().read_input(ops, p, x, linear)
        of_gates = linear(x, p.weight_ih, p.bias)
        return ops.join(of_gates, ops.like(x, of_gates))  # no product with the identity

    def maps_of_past(self, ops: Ops, p: Any) -> Maps:
        of_reset, of_candidate = ops.cut(p.weight_hh, 1, 1)
        return {"reset": (of_reset, None), "candidate": (of_candidate, p.bias_n)}

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        x_z, x_r, itself = ops.split(x, 1, 1, 1)
        z, r = ops.sigmoid(x_z), ops.sigmoid(w.reset(h, x_r))
        n = ops.tanh(w.candidate(r * h, ops.tanh(itself)))
        ops.show(z=z, r=r, n=n)
        n = w.dropped(n)
        return (h + z * (n - h),)


class MUT1Config(RecurrentConfig):
    """Configuration of a stack of MUT1 layers."""

    equation: ClassVar[type[Equation]] = MUT1
