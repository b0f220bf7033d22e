"""Cells linear in their past, which run a sequence by a parallel scan."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from seqgen.engines.ops import Leaf, Ops
from seqgen.models.recurrent.cells.equation import Equation, Maps, Parameter, Parts


class LinearEquation(Equation):
    """Linear recurrence h_t = a_t * h_{t-1} + b_t, where a_t and b_t depend on x_t alone.

    A cell defines `inputs` and `terms`.
    """

    has_update = True
    reads_past = False

    def fits_kernel(self, noise: Any) -> bool:
        return True

    def recurrent(self) -> dict[str, Parameter]:
        """Declare no recurrent matrices."""
        return {}

    def maps_of_past(self, ops: Ops, p: Any) -> Maps:
        return {}

    @abstractmethod
    def terms(self, ops: Ops, w: Any, x: Any) -> tuple[Any, Any]:
        """Compute a_t and b_t from x, one step or a whole sequence."""

    def __call__(self, ops: Ops, w: Any, x: Any, h: Any) -> tuple[Any]:
        a, b = self.terms(ops, w, x)
        return (a * h + b,)

    def fast_sequence(self, cell: Any, x: Leaf, state: Parts, noise: Any) -> tuple[Leaf, Parts]:
        import torch

        from seqgen.engines.tensor_ops import TensorOps
        from seqgen.models.recurrent.linear_maps import tensor_maps
        from seqgen.plugins.more_cells.scan import linear_scan

        from_input = cell.read_input(x.transpose(0, 1))  # (T, B, G H)
        wide = from_input.to(torch.promote_types(from_input.dtype, torch.float32))
        a, b = self.terms(TensorOps, noise.into(tensor_maps({}, cell.vectors())), wide)
        y = linear_scan(a, b, state[0])
        return y.transpose(0, 1).to(from_input.dtype), (y[-1].to(state[0].dtype),)
