"""Hawk: gated linear recurrences in residual blocks, without attention (De et al. 2024)."""

from __future__ import annotations

import math

from torch import nn

from seqgen.engines.choice import MOST_ROWS_OF_NUMPY
from seqgen.models.array_steps import ArraySteps
from seqgen.models.base import NeuralLanguageModel
from seqgen.plugins.more_cells.hawk.arrays import HawkArrays
from seqgen.plugins.more_cells.hawk.equations import HawkStack, Recurrence
from seqgen.plugins.more_cells.hawk.settings import HawkConfig


class Hawk(HawkStack, ArraySteps, NeuralLanguageModel):
    """Hawk in torch (architecture `hawk`): trained by a parallel scan, being linear in the past.

    Initialisation: maps as LeCun et al. (1998), normal with variance 1 / inputs, and those into
    the residual stream divided by the root of their number.
    """

    carries_state = True
    recurrent = True
    arrays = HawkArrays

    def __init__(self, config: HawkConfig) -> None:
        super().__init__(config)
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

    most_array_rows = MOST_ROWS_OF_NUMPY
