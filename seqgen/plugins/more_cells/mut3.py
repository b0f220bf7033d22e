"""MUT3, one of three recurrent cells found by a search (Jozefowicz et al. 2015)."""

from __future__ import annotations

from typing import Any, ClassVar

from seqgen.engines.ops import Ops
from seqgen.models.recurrent.cells.equation import Equation, Maps
from seqgen.models.recurrent.settings import RecurrentConfig


class MUT3(Equation):
    """MUT3 cell, with blocks in the order z, r, n.

    z_t = sigma(W_xz x_t + W_hz tanh(h_{t-1}) + b_z)
    r_t = sigma(W_xr x_t + W_hr h_{t-1} + b_r)
    n_t = tanh(W_hn (r_t * h_{t-1}) + W_xn x_t + b_n)
    h_t = z_t * n_t + (1 - z_t) * h_{t-1}
    """

    inputs = 3
    has_update = True
    replaces = "z"
    resets = "r"

    def maps_of_past(self, ops: Ops, p: Any) -> Maps:
        names = "update", "reset", "candidate"
        return {
            n: (block, None) for n, block in zip(names, ops.cut(p.weight_hh, 1, 1, 1), strict=True)
        }

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        x_z, x_r, x_n = ops.split(x, 1, 1, 1)
        z = ops.sigmoid(w.update(ops.tanh(h), x_z))
        r = ops.sigmoid(w.reset(h, x_r))
        n = ops.tanh(w.candidate(r * h, x_n))
        ops.show(z=z, r=r, n=n)
        n = w.dropped(n)
        return (h + z * (n - h),)


class MUT3Config(RecurrentConfig):
    """Configuration of a stack of MUT3 layers."""

    equation: ClassVar[type[Equation]] = MUT3
