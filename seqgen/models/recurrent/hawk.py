"""Hawk: gated linear recurrences in residual blocks, without attention (De et al. 2024)."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.models.base import NeuralLanguageModel
from seqgen.models.dropout import Dropout
from seqgen.models.engines.array_steps import ArraySteps
from seqgen.models.engines.onednn_linear import Linear
from seqgen.models.engines.tensor_ops import TensorOps
from seqgen.models.engines.tensor_products import as_tensor
from seqgen.models.recurrent import hawk_arrays
from seqgen.models.recurrent.hawk_arrays import (
    ACTIVATION,
    EPS,
    SHARPNESS,
    HawkArrays,
    HawkConfig,
    HawkState,
)
from seqgen.models.recurrent.model import FEW_ROWS
from seqgen.models.recurrent.scan import linear_scan
from seqgen.models.transformer.blocks import FeedForward
from seqgen.models.transformer.rms_norm import RMSNorm

# The decay where the recurrence gate is open begins uniform between these. The paper's 0.9 and
# 0.999 are for subwords: over characters, units that forget sooner learn faster (300 steps on tiny
# Shakespeare: 1.79 nats/token instead of 1.94).
DECAYS = 0.05, 0.95


class RGLRU(nn.Module):
    """See `hawk_arrays.unit`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gates = Linear(width, 2 * width)  # r, i
        self.gates.maps = {"weight": (width,) * 2}
        a = torch.empty(width).uniform_(*DECAYS) ** (1 / SHARPNESS)
        self.decay = nn.Parameter(torch.logit(a))  # Lambda

    def log_decay(self) -> Tensor:
        """Return the logarithm of the decay where the recurrence gate is open, (D,)."""
        return SHARPNESS * F.logsigmoid(TensorOps.wide(self.decay))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return hawk_arrays.unit(TensorOps, self, linear_scan, x, h)


class Recurrence(nn.Module):
    """See `hawk_arrays.recurrence`."""

    def __init__(self, config: HawkConfig) -> None:
        super().__init__()
        size, width = config.hidden_size, config.width
        self.inner = Linear(size, 2 * width)  # g, v
        self.inner.maps = {"weight": (width,) * 2}
        # One filter for each unit, the oldest token first; no matrix, so of three axes.
        self.filters = nn.Parameter(torch.empty(config.conv_width, 1, width))
        self.shift = nn.Parameter(torch.zeros(width))
        self.unit = RGLRU(width)
        self.output = Linear(width, size)

    def forward(self, x: Tensor, read: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return hawk_arrays.recurrence(TensorOps, self, x, read, h)


class HawkBlock(nn.Module):
    """See `hawk_arrays.block`, and `Block`."""

    called_whole: ClassVar[bool] = True

    def __init__(self, config: HawkConfig) -> None:
        super().__init__()
        self.recurrence = Recurrence(config)
        sizes = config.hidden_size, config.feed_forward_size
        self.feed_forward = FeedForward(*sizes, ACTIVATION, bias=True)
        self.recurrence_norm = RMSNorm(config.hidden_size, eps=EPS)
        self.feed_forward_norm = RMSNorm(config.hidden_size, eps=EPS)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, read: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return hawk_arrays.block(self, x, read, h)


class Hawk(ArraySteps, NeuralLanguageModel):
    """The registry's `hawk`: nothing but its gates is non-linear in the past, so it is scanned.

    Initialisation: maps as LeCun et al. (1998), normal with variance 1 / inputs, and those into
    the residual stream divided by the root of their number.
    """

    carries_state = True
    arrays = HawkArrays
    config: HawkConfig

    def __init__(self, config: HawkConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(HawkBlock(config) for _ in range(config.num_layers))
        self.final_norm = RMSNorm(config.hidden_size, eps=EPS)
        self.dropout = Dropout(config.dropout)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self._initialise()
        if config.tie_weights:
            self.head.weight = self.embedding.weight

    def _initialise(self) -> None:
        into_stream = math.sqrt(2 * self.config.num_layers)
        for name, part in self.named_modules():
            if isinstance(part, nn.Linear):
                outputs = into_stream if name.endswith(".output") else 1
                nn.init.normal_(part.weight, std=part.in_features**-0.5 / outputs)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
            elif isinstance(part, Recurrence):
                nn.init.normal_(part.filters, std=len(part.filters) ** -0.5)
        nn.init.xavier_uniform_(self.head.weight)

    def takes_arrays_for(self, rows: int) -> bool:
        return rows <= FEW_ROWS

    def start(self, batch: int, stride: int | None = None) -> HawkState:
        return hawk_arrays.start(TensorOps, self.config, self.embedding.weight, batch)

    def hidden(self, tokens: Tensor, state: HawkState | None) -> tuple[Tensor, HawkState]:
        state = state or self.start(tokens.shape[0])
        return hawk_arrays.features(self, tokens, state.map(as_tensor))
