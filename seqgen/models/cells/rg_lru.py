"""The real-gated linear recurrent unit of Griffin (De et al. 2024), a state-space model."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.models.cells.linear import LinearCell
from seqgen.models.ops import Ops
from seqgen.models.recurrent import RecurrentLM
from seqgen.models.recurrent_config import RecurrentConfig

# The decay of a fully open gate is a^SHARPNESS, and begins uniform between these.
SHARPNESS = 8.0
DECAYS = 0.9, 0.999
# The least 1 - a^2, for a gate that is all but shut: it bounds the root's derivative by 1,000.
LEAST_REST = 2.5e-7


class RGLRUCell(LinearCell):
    """The unit and the linear map before it; blocks in the order r, i, v.

    r_t = sigma(W_r x_t + b_r)
    i_t = sigma(W_i x_t + b_i)
    v_t = W_v x_t + b_v
    a_t = a^(8 r_t), where a = sigma(Lambda)
    h_t = a_t * h_{t-1} + sqrt(1 - a_t^2) * i_t * v_t

    What else Griffin's block has (a convolution, a gate beside, attention) is not here.
    """

    inputs = 3

    def __init__(self, input_size: int, config: RecurrentConfig) -> None:
        super().__init__(input_size, config)
        a = torch.empty(config.hidden_size).uniform_(*DECAYS) ** (1 / SHARPNESS)
        self.decay = nn.Parameter(torch.logit(a))

    def vectors(self) -> dict[str, Tensor]:
        return {"log_decay": SHARPNESS * F.logsigmoid(self.decay)}

    def terms(self, ops: Ops, w: Any, x: Any) -> tuple[Any, Any]:
        gates, v = ops.split(x, 2, 1)
        r, i = ops.split(ops.sigmoid(gates), 1, 1)
        log_a = w.log_decay * r
        rest = -ops.expm1(2 * log_a)
        rest = ops.where(rest > LEAST_REST, rest, LEAST_REST)
        return ops.exp(log_a), ops.sqrt(rest) * i * w.dropped(v)


class RGLRU(RecurrentLM):
    """The registry's `rg-lru`."""

    cell = RGLRUCell
