"""Linear interpolation of models with one vocabulary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqgen.configs import ModelConfig
from seqgen.data.sources import Source, Sources
from seqgen.models.base import LanguageModel
from seqgen.models.distributions import weighted_sum_of
from seqgen.models.reader import LOGITS_AT_ONCE
from seqgen.models.scores import Predictions, first_best, ranks_in
from seqgen.models.state import State


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

    normalised = True

    def __init__(self, components: Sequence[LanguageModel], weights: Sequence[float]) -> None:
        super().__init__()
        self.config = ModelConfig(vocab_size=components[0].vocab_size)
        self.components = nn.ModuleList(components)
        self._in_order = tuple(components)  # quicker to go through, as every step does
        total = sum(weights)
        self.log_weights = [math.log(w / total) if w else -math.inf for w in weights]
        self.weights = np.array(weights)[:, None, None] / total  # (K, 1, 1)
        self.window = _least(part.window for part in components)
        self.source_window = _least(part.source_window for part in components)
        self.rows_at_least = min(part.rows_at_least for part in components)

    @property
    def parts(self) -> Sequence[LanguageModel]:
        return [part for component in self.components for part in component.parts]

    def parameter_count(self) -> int:
        """Return the number of the components' numbers."""
        return sum(part.parameter_count() for part in self.components)

    def start(self, batch: int, stride: int | None = None) -> MixtureState:
        return MixtureState(tuple(part.start(batch, stride) for part in self.components))

    def opens(
        self, sources: Sources, stride: int | None = None
    ) -> Callable[[Sequence[int]], MixtureState]:
        """Return what opens states on sources; see `EncoderDecoder.opens`, which each part has."""
        each = [part.opens(sources, stride) for part in self.components]
        return lambda handles: MixtureState(tuple(opened(handles) for opened in each))

    def remember(self, source: Source) -> MixtureState:
        """Encode sources by each part; see `EncoderDecoder.remember`."""
        return MixtureState(tuple(part.remember(source) for part in self.components))

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

    def forward(
        self, tokens: Tensor, state: MixtureState | None = None, last: int | None = None
    ) -> tuple[Tensor, MixtureState | None]:
        weights = self.log_weights_after(tokens, state)
        weights = [each if isinstance(each, float) else each[..., None] for each in weights]
        if last is not None:
            weights = [each if isinstance(each, float) else each[:, -last:] for each in weights]
        children = (None,) * len(self.components) if state is None else state.children
        log_probs, after = [], []
        for part, child in zip(self.components, children, strict=True):
            logits, child = part(tokens, child, last)
            log_probs.append(logits.log_softmax(-1))
            after.append(child)
        mixed = weighted_sum(log_probs, weights)
        return mixed, None if state is None else MixtureState(tuple(after))

    def step(self, tokens: Sequence[int], state: MixtureState) -> tuple[np.ndarray, MixtureState]:
        logits, after = self.read_step(tokens, state)
        return weighted_sum_of(logits, self.weights), after

    def read_step(
        self, tokens: Sequence[int], state: MixtureState
    ) -> tuple[list[np.ndarray], MixtureState]:
        """Return each component's logits (B, V) after one more token, and the state after."""
        logits, children = [], []
        for part, child in zip(self._in_order, state.children, strict=True):
            of_part, child = part.step(tokens, child)
            logits.append(of_part)
            children.append(child)
        return logits, MixtureState(tuple(children))

    def log_weights_after(
        self, tokens: Tensor, state: MixtureState | None
    ) -> Sequence[float | Tensor]:
        """Return the log of each component's weight after tokens (B, T): a number, or (B, T)."""
        return self.log_weights

    def predictions(
        self, tokens: Tensor, state: MixtureState
    ) -> tuple[MixedPredictions, MixtureState]:
        weights = self.log_weights_after(tokens, state)
        read = [
            part.predictions(tokens, child)
            for part, child in zip(self.components, state.children, strict=True)
        ]
        parts, after = zip(*read, strict=True)
        rows_at_once = max(1, LOGITS_AT_ONCE // self.vocab_size)
        return MixedPredictions(parts, weights, rows_at_once), MixtureState(after)

    @property
    def most_at_once(self) -> int:
        return min(part.most_at_once for part in self.components)

    @property
    def quick_ranks(self) -> bool:
        return all(part.quick_ranks for part in self.components)


class MixedPredictions(Predictions):
    """The predictions of a mixture, whose parts write out no more rows than needed.

    Args:
        parts: the components' predictions.
        log_weights: one for each, which may differ from place to place: a number or (B, T).
        rows_at_once: how many rows (V) there is memory for.
    """

    def __init__(
        self,
        parts: Sequence[Predictions],
        log_weights: Sequence[float | Tensor],
        rows_at_once: int,
    ) -> None:
        self.rows_at_once = rows_at_once
        # Components of weight 0 need not be evaluated.
        pairs = zip(parts, log_weights, strict=True)
        weighted = [(p, w) for p, w in pairs if not isinstance(w, float) or w > -math.inf]
        self.parts, self.log_weights = zip(*weighted, strict=True)

    def log_probs(self, targets: Tensor) -> Tensor:
        return weighted_sum([part.log_probs(targets) for part in self.parts], self.log_weights)

    def rows(self, places: Tensor) -> Tensor:
        weights = [
            each if isinstance(each, float) else each.flatten()[places, None]
            for each in self.log_weights
        ]
        return weighted_sum([part.rows(places) for part in self.parts], weights)

    def best(self) -> Tensor:
        one = self.parts[0].best()  # only for its shape and device
        places = torch.arange(one.numel(), device=one.device)
        best = [first_best(self.rows(some)) for some in places.split(self.rows_at_once)]
        return torch.cat(best).view_as(one)

    def ranks(self, targets: Tensor) -> Tensor:
        places = torch.arange(targets.numel(), device=targets.device)
        return self._ranks_at(places, targets.flatten()).view_as(targets)

    def _ranks_at(self, places: Tensor, targets: Tensor) -> Tensor:
        """Return the ranks (M,) of those of the flat targets that stand at places (M,)."""
        ranks = [ranks_in(self.rows(p), targets[p]) for p in places.split(self.rows_at_once)]
        return torch.cat(ranks)

    def hits(self, targets: Tensor) -> Tensor:
        """Return whether each target is the most probable token, with few rows written out.

        A target that is every component's favourite is the mixture's too; one that is less
        probable than some component's favourite is not. Rows are computed only for the others.
        """
        mine = self.log_probs(targets)
        sure = torch.ones_like(targets, dtype=torch.bool)
        beaten = torch.zeros_like(sure)
        for favourite in [part.best() for part in self.parts]:
            value = self.log_probs(favourite)
            beaten |= (value > mine) | ((value == mine) & (favourite < targets))
            sure &= favourite == targets
        places = torch.nonzero((~(sure | beaten)).flatten()).squeeze(1)
        hits = sure.flatten()
        if places.numel():
            hits[places] = self._ranks_at(places, targets.flatten()) == 0
        return hits.view_as(targets)


def weighted_sum(log_probs: Sequence[Tensor], log_weights: Sequence[float | Tensor]) -> Tensor:
    """Return the log of the weighted sum of probabilities, in float32 or wider.

    Args:
        log_probs: of each component.
        log_weights: a number for each, or a tensor that broadcasts.
    """
    terms = [
        lp + (weight if isinstance(weight, float) else weight.to(lp.dtype))
        for lp, weight in zip(log_probs, log_weights, strict=True)
    ]
    mixed = torch.stack(terms).logsumexp(0)
    return mixed.to(torch.promote_types(log_probs[0].dtype, torch.float32))


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


def _least(limits: Iterable[int | None]) -> int | None:
    """Return the least of some limits, or None where there is none."""
    return min((limit for limit in limits if limit is not None), default=None)
