"""Linear interpolation of torch modules."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqgen.models.base import LanguageModel
from seqgen.models.mixture.mixed import Mixed, MixtureState


class Mixture(Mixed, LanguageModel):
    """A mixture of torch modules; see `Mixed.mix` for its arguments."""

    def __init__(
        self,
        components: Sequence[LanguageModel],
        weights: Sequence[float],
        by_order: Sequence[Sequence[float]] | None = None,
    ) -> None:
        super().__init__()
        self.components = nn.ModuleList(components)
        self.mix(components, weights, by_order)

    def forward(
        self, tokens: Tensor, state: MixtureState | None = None, last: int | None = None
    ) -> tuple[Tensor, MixtureState | None]:
        return self.interpolated(tokens, state, last)

    def attend(self, tokens: Tensor, memory: MixtureState) -> Tensor:
        """Return the weighted mean of what the parts read of a source, (B, 1, 1, T, L).

        Past its window, each part reads the text in windows of its own, as it predicts.

        Args:
            tokens: (B, T) of int64, what the decoders read, BOS first.
            memory: of `remember`, with B rows.

        Raises:
            UsageError: a part has no attention.
        """
        parts = zip(self.components, memory.children, self.log_weights, strict=True)
        each = [
            math.exp(weight) * part.attend(tokens, child).mean((1, 2), keepdim=True)
            for part, child, weight in parts
        ]
        return torch.stack(each).sum(0)
