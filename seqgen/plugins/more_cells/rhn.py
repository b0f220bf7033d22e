"""The recurrent highway network (Zilly et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seqgen.engines.ops import Ops
from seqgen.models.recurrent.cells.equation import ORTHOGONAL, Equation, Maps, Parameter
from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.settings import ranges, setting


class RHN(Equation):
    """Recurrent highway cell of depth L with coupled gates; blocks in the order n, t.

    From s_0 = h_{t-1}, for l = 1 ... L, where the input stands in the first layer alone:

    n_l = tanh(W_n x_t + R_nl s_{l-1} + b_nl)
    t_l = sigma(W_t x_t + R_tl s_{l-1} + b_tl)
    s_l = n_l * t_l + s_{l-1} * (1 - t_l)

    and h_t = s_L.
    """

    inputs = 2
    has_update = True

    def recurrent(self) -> dict[str, Parameter]:
        deeper = self.matrix(2, self.hidden_size, ORTHOGONAL)
        return super().recurrent() | {f"weight_hh_{layer}": deeper for layer in self.deeper}

    def biases(self) -> Parameter:
        return self.vector(0.0, self.config.transform_bias)

    def more(self) -> dict[str, Parameter]:
        return {f"bias_{layer}": self.biases() for layer in self.deeper}

    @property
    def deeper(self) -> range:
        """Numbers of the highway layers after the first."""
        return range(2, self.config.depth + 1)

    def maps_of_past(self, ops: Ops, p: Any) -> Maps:
        maps = {"hh": (p.weight_hh, None)}
        for layer in self.deeper:
            weight, bias = getattr(p, f"weight_hh_{layer}"), getattr(p, f"bias_{layer}")
            maps[f"hh_{layer}"] = weight, bias
        return maps

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        n, t = ops.gates(w.hh(h, x), ops.tanh, ops.sigmoid)
        ops.show(n_1=n, t_1=t)
        h = h + t * (w.dropped(n) - h)
        for layer in self.deeper:
            n, t = ops.gates(getattr(w, f"hh_{layer}")(h), ops.tanh, ops.sigmoid)
            ops.show(**{f"n_{layer}": n, f"t_{layer}": t})
            h = h + t * (w.dropped(n) - h)
        return (h,)


@dataclass(frozen=True, kw_only=True)
class RHNConfig(RecurrentConfig):
    """Configuration of a stack of recurrent highway layers."""

    equation: ClassVar[type[Equation]] = RHN

    depth: int = setting("Number of highway layers from one step to the next.", 2, ranges.LAYERS)
    transform_bias: float = setting(
        "Initial bias of the transform gates: how little of the past is replaced.",
        -2.0,
        ranges.SIGNED_TO_1000,
    )
