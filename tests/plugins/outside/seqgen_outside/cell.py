"""The light gated recurrent unit (Ravanelli et al. 2018)."""

from dataclasses import dataclass
from typing import ClassVar

from seqgen.models.recurrent.cells.equation import Equation
from seqgen.models.recurrent.settings import RecurrentConfig


class LiGRU(Equation):
    """A GRU without a reset gate; blocks in the order z, n.

    z_t = sigma(W_xz x_t + W_hz h_{t-1} + b_z)
    n_t = relu(W_xn x_t + W_hn h_{t-1} + b_n)
    h_t = z_t * h_{t-1} + (1 - z_t) * n_t
    """

    inputs, keeps = 2, "z"

    def __call__(self, ops, w, x, h):
        z, n = ops.gates(w.hh(h, x), ops.sigmoid, ops.relu)
        ops.show(z=z, n=n)
        return (n + z * (h - n),)


@dataclass(frozen=True, kw_only=True)
class LiGRUConfig(RecurrentConfig):
    """A stack of light GRU layers."""

    equation: ClassVar[type[Equation]] = LiGRU
