"""The light gated recurrent unit (Ravanelli, Brakel, Omologo and Bengio 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seqgen.models.recurrent.equation import Equation
from seqgen.models.recurrent.settings import RecurrentConfig


class LiGRU(Equation):
    """A GRU without a reset gate, whose candidate is a ReLU; blocks in the order z, n.

    z_t = sigma(W_xz x_t + W_hz h_{t-1} + b_z)
    n_t = relu(W_xn x_t + W_hn h_{t-1} + b_n)
    h_t = z_t * h_{t-1} + (1 - z_t) * n_t
    """

    inputs = 2
    has_update = True
    keeps = "z"

    def __call__(self, ops: Any, w: Any, x: Any, h: Any) -> tuple[Any]:
        z, n = ops.gates(w.hh(h, x), ops.sigmoid, ops.relu)
        ops.show(z=z, n=n)
        n = w.dropped(n)
        return (n + z * (h - n),)


@dataclass(frozen=True, kw_only=True)
class LiGRUConfig(RecurrentConfig):
    """A stack of light GRU layers."""

    equation: ClassVar[type[Equation]] = LiGRU
