"""A moving average of a model's weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from seqgen.training.sharding import on_first, part_of


class Average:
    """The exponential moving average of parameters: a <- d a + (1 - d) p after every update.

    At update k, d is min(decay, (1 + k) / (10 + k)), so that the random start is soon forgotten.

    Args:
        model: whose trained parameters as they are now begin the average.
        decay: d in the long run.

    Attributes:
        means: the averages, in the order of the parameters.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self.means = [p.detach().clone() for p in self._parameters]

    def update(self, step: int) -> None:
        """Update the average after update `step`, counted from 0."""
        decay = min(self._decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(self.means, self._parameters, None)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the averages in the place of the model's parameters within a context."""
        trained = [p.detach().clone() for p in self._parameters]
        self._fill(self.means)
        try:
            yield
        finally:
            self._fill(trained)

    @torch.no_grad()
    def _fill(self, values: list[Tensor]) -> None:
        # In place, so that caches that compare a parameter's version see that it has changed.
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)

    def tensors(self) -> dict[str, Tensor]:
        """Return the averages, by number."""
        return on_first({str(i): mean for i, mean in enumerate(self.means)})

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        for i, mean in enumerate(self.means):
            part_of(tensors[str(i)], mean)
