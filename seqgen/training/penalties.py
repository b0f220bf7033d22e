"""What a training call's activations cost besides the nats of its predictions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from seqgen.data.batches import IGNORED
from seqgen.models.base import NeuralLanguageModel

# In each call, features (B, T, H) before their dropout and after it.
Seen = list[tuple[Tensor, Tensor]]


class ActivationPenalties:
    """Activation and temporal activation regularisation (Merity et al. 2017).

    alpha mean(d_t^2) + beta mean((h_t - h_{t-1})^2) is added to the loss of a token, with h_t the
    features before their dropout, d_t those after it, which the head reads, and means over units.
    It is minimised and never reported: a loss in nats stays one.

    Args:
        model: whose features these are; alpha and beta are in its configuration.
    """

    def __init__(self, model: NeuralLanguageModel) -> None:
        self._alpha = getattr(model.config, "activation_penalty", 0.0)
        self._beta = getattr(model.config, "temporal_penalty", 0.0)
        self._dropout = model.output_dropout if self else None

    def __bool__(self) -> bool:
        return self._alpha > 0 or self._beta > 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[Seen]:
        """Collect the features of the calls within."""
        seen: Seen = []
        if not self:
            yield seen
            return

        def keep(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            seen.append((inputs[0], output))

        handle = self._dropout.register_forward_hook(keep)
        try:
            yield seen
        finally:
            handle.remove()

    def cost(self, seen: Seen, targets: Tensor) -> Tensor:
        """Return the penalty, summed over the positions of targets (B, T) that are not padding."""
        h, dropped = (torch.cat(parts, 1) for parts in zip(*seen, strict=True))  # (B, T, H)
        wide = torch.promote_types(h.dtype, torch.float32)
        there = targets != IGNORED
        total = self._alpha * dropped.to(wide).square().mean(-1)[there].sum()
        if self._beta and h.shape[1] > 1:
            change = h.to(wide).diff(dim=1).square().mean(-1)  # (B, T - 1)
            total = total + self._beta * change[there[:, 1:]].sum()
        return total
