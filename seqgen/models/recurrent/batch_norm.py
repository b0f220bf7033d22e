"""Batch normalisation of recurrent layers (Ioffe and Szegedy 2015; Laurent et al. 2016)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqgen import ranks
from seqgen.engines.dropout import rows_are_blank
from seqgen.models.recurrent.array_layer import EPS, scale_and_shift


class BatchNorm(nn.BatchNorm1d):
    """gain * (x - mean) / sqrt(variance + eps) + bias, with a mean and a variance a feature.

    In training they are those of the call, over its rows and time steps together; in evaluation
    the running ones, which are saved with the weights. A call of one row and one step has no
    variance, and uses the running ones too.

    Args:
        size: the number of features.
        has_bias: whether there is a bias; not where one is added anyway.
    """

    def __init__(self, size: int, has_bias: bool = True) -> None:
        super().__init__(size, eps=EPS)
        if not has_bias:
            self.register_parameter("bias", None)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (B, T, H), or (B, H) of one time step."""
        rows = x.flatten(0, -2)
        if self.training and ranks.world() > 1:
            return self._over_all_ranks(rows).view_as(x)
        if self.training and len(rows) > 1:
            return super().forward(rows).view_as(x)
        scale, shift = scale_and_shift(self)
        return (x * scale + shift).to(x.dtype)

    def _over_all_ranks(self, rows: Tensor) -> Tensor:
        """Normalise rows (N, H) by the mean and the variance of those of all ranks."""
        wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
        counts = wide.new_full((1,), 0.0 if rows_are_blank() else 1.0)
        n = ranks.summed(counts * len(rows))
        mean = ranks.summed(counts * wide.sum(0)) / n
        variance = ranks.summed(counts * (wide - mean).square().sum(0)) / n
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
            unbiased = variance * n / (n - 1).clamp_min(1)
            self.running_var.lerp_(unbiased.to(self.running_var), self.momentum)
        normed = (wide - mean) / torch.sqrt(variance + self.eps) * self.weight
        return (normed if self.bias is None else normed + self.bias).to(rows.dtype)
