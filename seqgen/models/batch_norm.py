"""Batch normalisation between recurrent layers (Ioffe and Szegedy 2015; Laurent et al. 2016)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BatchNorm(nn.BatchNorm1d):
    """gain * (x - mean) / sqrt(variance + eps) + bias, with a mean and a variance a feature.

    In training they are those of the call, over its rows and time steps together; in evaluation
    the running ones, which are saved with the weights. A call of one row and one step has no
    variance, and uses the running ones too.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (B, T, H)."""
        rows = x.flatten(0, 1)
        if self.training and len(rows) > 1:
            return super().forward(rows).view_as(x)
        scale, shift = self.scale_and_shift()
        return (x * scale + shift).to(x.dtype)

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """Return what evaluation multiplies each feature by (H,), and what it then adds (H,)."""
        scale = self.weight / torch.sqrt(self.running_var + self.eps)
        return scale, self.bias - self.running_mean * scale
