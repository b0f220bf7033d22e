"""The gated recurrent unit, in its two published forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqgen.engines.ops import Leaf, Ops
from seqgen.models.recurrent.cells.equation import Equation, Maps, Parameter, Parts
from seqgen.models.recurrent.settings import RecurrentConfig
from seqgen.settings import setting


class GRU(Equation):
    """GRU cell, with blocks in the order r, z, n.

    r_t = sigma(W_xr x_t + W_hr h_{t-1} + b_r)
    z_t = sigma(W_xz x_t + W_hz h_{t-1} + b_z)
    n_t = tanh(W_xn x_t + b_n + W_hn (r_t * h_{t-1}))            reset before (Cho et al. 2014)
    n_t = tanh(W_xn x_t + b_n + r_t * (W_hn h_{t-1} + b_hn))     reset after (cuDNN, PyTorch)
    h_t = (1 - z_t) * n_t + z_t * h_{t-1}

    Only the second form has the bias b_hn.
    """

    inputs = 3
    has_update = True
    keeps = "z"
    resets = "r"

    @property
    def resets_after(self) -> bool:
        """Whether the reset gate applies after the recurrent product."""
        return self.config.reset == "after"

    def more(self) -> dict[str, Parameter]:
        return {"bias_hn": self.vector(0.0)} if self.resets_after else {}

    def maps_of_past(self, ops: Ops, p: Any) -> Maps:
        if self.resets_after:
            of_gates = ops.zeros(p.bias_hn, 2 * self.hidden_size)  # r and z have none
            return {"hh": (p.weight_hh, ops.join(of_gates, p.bias_hn))}
        of_gates, of_candidate = ops.cut(p.weight_hh, 2, 1)
        return {"gates": (of_gates, None), "candidate": (of_candidate, None)}

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        x_gates, x_n = ops.split(x, 2, 1)  # (B, 2 H), (B, H)
        if not self.resets_after:
            r, z = ops.gates(w.gates(h, x_gates), ops.sigmoid, ops.sigmoid)
            n = ops.tanh(w.candidate(r * h, x_n))
        else:
            of_gates, of_n = ops.split(w.hh(h), 2, 1)
            r, z = ops.gates(x_gates + of_gates, ops.sigmoid, ops.sigmoid)
            n = ops.tanh(x_n + r * of_n)
        ops.show(r=r, z=z, n=n)
        n = w.dropped(n)
        return (n + z * (h - n),)

    def fast_sequence(
        self, cell: Any, x: Leaf, state: Parts, noise: Any
    ) -> tuple[Leaf, Parts] | None:
        if not self.resets_after:  # no kernel has the form of 2014
            return None
        import torch

        from seqgen.engines.fast_layers import trains_on_cpu
        from seqgen.engines.precision import kernel_arithmetic
        from seqgen.models.recurrent.bptt import GRURecurrence

        of_past, bias = noise.maps["hh"]
        if trains_on_cpu(x):
            from_input = cell.read_input(x.transpose(0, 1))  # (T, B, 3 H)
            y = GRURecurrence.apply(from_input, of_past.to(from_input.dtype), bias, state[0])
            return y.transpose(0, 1), (y[-1].to(state[0].dtype),)
        weights = [cell.weight_ih, of_past, cell.bias, bias]
        with kernel_arithmetic(x.device):
            y, h = torch.gru(x, state[0][None], weights, True, 1, 0.0, cell.training, False, True)
        return y, (h[0],)


@dataclass(frozen=True, kw_only=True)
class GRUConfig(RecurrentConfig):
    """Configuration of a stack of GRU layers."""

    equation: ClassVar[type[Equation]] = GRU

    reset: Literal["before", "after"] = setting(
        "Apply the reset gate before the recurrent product, W (r * h) (Cho et al. 2014), or after "
        "it, r * (W h) (the first version of that paper, and cuDNN).",
        "after",
    )
