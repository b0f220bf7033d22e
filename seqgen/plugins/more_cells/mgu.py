"""The minimal gated unit (Zhou et al. 2016)."""

from __future__ import annotations

from typing import Any, ClassVar

from seqgen.engines.ops import Ops
from seqgen.models.recurrent.cells.equation import Equation, Maps
from seqgen.models.recurrent.settings import RecurrentConfig


class MGU(Equation):
    """Minimal gated unit: a GRU with one gate that resets and updates; blocks f, n.

    f_t = sigma(W_xf x_t + W_hf h_{t-1} + b_f)
    n_t = tanh(W_xn x_t + W_hn (f_t * h_{t-1}) + b_n)
    h_t = (1 - f_t) * h_{t-1} + f_t * n_t
    """

    inputs = 2
    has_update = True
    replaces = "f"
    resets = "f"

    def maps_of_past(self, ops: Ops, p: Any) -> Maps:
        of_gate, of_candidate = ops.cut(p.weight_hh, 1, 1)
        return {"gate": (of_gate, None), "candidate": (of_candidate, None)}

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        x_f, x_n = ops.split(x, 1, 1)
        f = ops.sigmoid(w.gate(h, x_f))
        n = ops.tanh(w.candidate(f * h, x_n))
        ops.show(f=f, n=n)
        n = w.dropped(n)
        return (h + f * (n - h),)


class MGUConfig(RecurrentConfig):
    """Configuration of a stack of MGU layers."""

    equation: ClassVar[type[Equation]] = MGU
