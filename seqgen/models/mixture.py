"""Linear interpolation of models with one vocabulary."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqgen.configs import ModelConfig
from seqgen.models.base import LanguageModel
from seqgen.models.state import State

# (component, its state) -> log-probabilities, and its state after.
Read = Callable[[LanguageModel, State | None], tuple[Tensor, State | None]]


@dataclass
class MixtureState(State):
    """The components' states."""

    children: tuple[State, ...]


class Mixture(LanguageModel):
    """p(w | past) = sum over components k of weight_k p_k(w | past).

    Args:
        components: models with one vocabulary.
        weights: one for each, not negative; they are divided by their sum.
    """

    def __init__(self, components: Sequence[LanguageModel], weights: Sequence[float]) -> None:
        super().__init__()
        self.config = ModelConfig(vocab_size=components[0].vocab_size)
        self.components = nn.ModuleList(components)
        total = sum(weights)
        self.log_weights = [math.log(w / total) if w else -math.inf for w in weights]
        windows = [part.window for part in components if part.window is not None]
        self.window = min(windows, default=None)
        self.rows_at_least = min(part.rows_at_least for part in components)

    def parameter_count(self) -> int:
        """Return the number of the components' numbers."""
        return sum(part.parameter_count() for part in self.components)

    def start(self, batch: int, stride: int | None = None) -> MixtureState:
        return MixtureState(tuple(part.start(batch, stride) for part in self.components))

    def forward(
        self, tokens: Tensor, state: MixtureState | None = None, last: int | None = None
    ) -> tuple[Tensor, MixtureState | None]:
        def read(part: LanguageModel, child: State | None) -> tuple[Tensor, State | None]:
            logits, child = part(tokens, child, last)
            return logits.log_softmax(-1), child

        if state is None:
            return self._mixed(read, (None,) * len(self.components))[0], None
        return self._mixed(read, state.children)

    def step(self, tokens: Sequence[int], state: MixtureState) -> tuple[np.ndarray, MixtureState]:
        def read(part: LanguageModel, child: State) -> tuple[Tensor, State]:
            logits, child = part.step(tokens, child)
            return torch.from_numpy(logits).log_softmax(-1), child

        mixed, after = self._mixed(read, state.children)
        return mixed.numpy(), after

    def score(
        self, tokens: Tensor, targets: Tensor, state: MixtureState
    ) -> tuple[Tensor, MixtureState]:
        return self._mixed(lambda part, child: part.score(tokens, targets, child), state.children)

    def _mixed(self, read: Read, children: Sequence[State | None]) -> tuple[Tensor, MixtureState]:
        """Return the log of the weighted sum of what components read, and their states after."""
        log_probs, after = zip(*map(read, self.components, children), strict=True)
        shares = [lp + weight for lp, weight in zip(log_probs, self.log_weights, strict=True)]
        mixed = torch.stack(shares).logsumexp(0)
        return mixed.to(torch.promote_types(log_probs[0].dtype, torch.float32)), MixtureState(after)


def fit_weights(
    log_probs: Tensor, tolerance: float = 1e-7, rounds: int = 1000
) -> tuple[list[float], list[float]]:
    """Find the weights under which held-out text is most probable, by EM (Jelinek 1980).

    Each round gives every component the share of the text that it is likely to have written.
    The likelihood has one maximum and never falls.

    Args:
        log_probs: (N, K), of each token under each component, in nats.
        tolerance: stop when a round gains less than so many nats a token.
        rounds: stop after so many.

    Returns:
        The K weights, and the mean log-probability before every round and after the last.
    """
    possible = (log_probs > -torch.inf).any(1)
    log_probs = log_probs[possible].double()
    weights = torch.full((log_probs.shape[1],), 1 / log_probs.shape[1], dtype=torch.float64)
    history: list[float] = []
    while True:
        joint = log_probs + weights.log()  # (N, K)
        mixed = joint.logsumexp(1, keepdim=True)
        history.append(mixed.mean().item())
        gain = history[-1] - history[-2] if len(history) > 1 else torch.inf
        if gain < tolerance or len(history) > rounds:
            return weights.tolist(), history
        weights = (joint - mixed).exp().mean(0)
