"""Linear interpolation of torch modules, and the weights under which it fits a text best."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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


def fit_weights(
    log_probs: Tensor,
    tolerance: float = 1e-7,
    rounds: int = 1000,
    tied: Callable[[Tensor], Tensor] = lambda weights: weights,
) -> tuple[list[float], list[float]]:
    """Find the weights under which held-out text is most probable, by EM (Jelinek 1980).

    Each round gives every component the share of the text that it is likely to have written.
    The likelihood has one maximum and never falls.

    Args:
        log_probs: (N, K), of each token under each component, in nats.
        tolerance: stop when a round gains less than so many nats a token.
        rounds: stop after so many.
        tied: returns the most probable weights among those allowed, from the shares (K,) of the
            text that a round gave; all weights that sum to 1 are allowed if not given.

    Returns:
        The K weights, and the mean log-probability before every round and after the last.
    """
    possible = (log_probs > -torch.inf).any(1)
    log_probs = log_probs[possible].double()
    parts = log_probs.shape[1]
    weights = tied(torch.full((parts,), 1 / parts, dtype=torch.float64))
    history: list[float] = []
    while True:
        joint = log_probs + weights.log()  # (N, K)
        mixed = joint.logsumexp(1, keepdim=True)
        history.append(mixed.mean().item())
        gain = history[-1] - history[-2] if len(history) > 1 else torch.inf
        if gain < tolerance or len(history) > rounds:
            return weights.tolist(), history
        weights = tied((joint - mixed).exp().mean(0))
