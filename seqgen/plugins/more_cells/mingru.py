"""The minimal GRU, whose gate does not read the past (Feng et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seqgen.engines.ops import Ops
from seqgen.models.recurrent.cells.equation import Equation
from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.plugins.more_cells.linear import LinearEquation
from seqgen.settings import setting


class MinGRU(LinearEquation):
    """Minimal GRU cell, with blocks in the order z, n.

    z_t = sigma(W_z x_t + b_z)
    n_t = g(W_n x_t + b_n), where g(a) = a + 1/2 if a >= 0, else sigma(a)
    h_t = (1 - z_t) * h_{t-1} + z_t * n_t
    """

    inputs = 2
    replaces = "z"

    def terms(self, ops: Ops, w: Any, x: Any) -> tuple[Any, Any]:
        z, n = ops.split(x, 1, 1)
        z = ops.sigmoid(z)
        n = positive_activation(ops, n) if self.config.positive else n
        ops.show(z=z, n=n)
        n = w.dropped(n)
        return 1 - z, z * n


def positive_activation(ops: Ops, a: Any) -> Any:
    """Compute the positive activation g(a) = a + 1/2 if a >= 0, else sigma(a)."""
    return ops.where(a >= 0, a + 0.5, ops.sigmoid(a))


@dataclass(frozen=True, kw_only=True)
class MinGRUConfig(RecurrentConfig):
    """Configuration of a stack of minimal GRU layers."""

    equation: ClassVar[type[Equation]] = MinGRU

    positive: bool = setting(
        "Pass new values through g, which is positive (the paper's appendix B); false: as they "
        "are (its section 3).",
        True,
    )
