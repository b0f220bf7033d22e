"""Linear interpolation of models with one vocabulary, over arrays or tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from seqgen.engines.ops import Leaf, ops_of
from seqgen.models.distributions import mix_logits
from seqgen.models.inference import LOGITS_AT_ONCE, InferenceModel
from seqgen.models.mixture.gate import Gate, find_order_guide
from seqgen.models.mixture.weights import MixtureWeights
from seqgen.models.scores import Predictions, first_best, ranks_in
from seqgen.models.state import State
from seqgen.settings import ModelConfig
from seqgen.text.sources import Source, Sources


@dataclass
class MixtureState(State):
    """State of a mixture: one state per component."""

    children: tuple[State, ...]


class Mixed(InferenceModel):
    """Linear mixture of language models: p(w | past) = sum over k of weight_k p_k(w | past).

    With a table of weights by order, they are weight_(m, k), where m, the order matched, is how
    many of the last tokens the n-gram component has stored as a context. It depends on the past
    alone, so that the probabilities sum to 1 after every past.

    With a gate, the probabilities are multiplied instead of added up; see `Gate`.

    Attributes:
        components: models with one vocabulary.
        guide: the number of the n-gram component that reports m; None if nothing depends on m.
        gate: None without one.
    """

    normalised = True
    components: Sequence[InferenceModel]

    def mix(self, components: Sequence[InferenceModel], weights: MixtureWeights) -> None:
        """Set the component models, which have one vocabulary, and their weights.

        Raises:
            ValueError: a table does not fit the components, or there is no n-gram component.
        """
        self.config = ModelConfig(vocab_size=components[0].vocab_size)
        self._in_order = tuple(components)  # quicker to go through, as every step does
        total = sum(weights.fixed)
        self.log_weights = [math.log(w / total) if w else -math.inf for w in weights.fixed]
        self.weights = np.array(weights.fixed)[:, None, None] / total  # (K, 1, 1)
        self.window = _least(part.window for part in components)
        self.source_window = _least(part.source_window for part in components)
        self.rows_at_least = min(part.rows_at_least for part in components)
        self.guide, self.table, self.gate = None, None, None
        if len(weights.gate):
            self.gate = Gate(weights.gate, components)
            self.guide, self.normalised = self.gate.guide, False
        if len(weights.by_order):
            self.guide, _ = find_order_guide(components)
            if self.guide is None:
                raise ValueError("no component is an n-gram model")
            self.table = np.array(weights.by_order, np.float64).T.copy()  # (K, N)
            if self.table.shape[1] != components[self.guide].orders:
                raise ValueError(f"there are weights for {self.table.shape[1]} orders")
            with np.errstate(divide="ignore"):
                self.log_table = np.log(self.table)

    @property
    def parts(self) -> Sequence[InferenceModel]:
        return [part for component in self.components for part in component.parts]

    def parameter_count(self) -> int:
        """Count the parameters of all components."""
        return sum(part.parameter_count() for part in self.components)

    def start(self, batch: int, stride: int | None = None) -> MixtureState:
        return MixtureState(tuple(part.start(batch, stride) for part in self.components))

    def opens(
        self, sources: Sources, stride: int | None = None
    ) -> Callable[[Sequence[int]], MixtureState]:
        """Encode sources; return a function that opens states on them by number."""
        each = [part.opens(sources, stride) for part in self.components]
        return lambda handles: MixtureState(tuple(opened(handles) for opened in each))

    def remember(self, source: Source) -> MixtureState:
        """Encode sources by each component; see `FromSource.remember`."""
        return MixtureState(tuple(part.remember(source) for part in self.components))

    def attend(self, tokens: Leaf, memory: MixtureState) -> Leaf:
        """Compute the weighted mean of the components' attention to a source, (B, 1, 1, T, L).

        Past its window, each part reads the text in windows of its own, as it predicts.

        Args:
            tokens: (B, T) of int64, what the decoders read, BOS first.
            memory: of `remember`, with B rows.

        Raises:
            UsageError: a part has no attention.
        """
        parts = zip(self.components, memory.children, self.log_weights, strict=True)
        each = [
            math.exp(weight) * part.attend(tokens, child).mean((1, 2), keepdims=True)
            for part, child, weight in parts
        ]
        return sum(each)

    def interpolated(
        self, tokens: Leaf, state: MixtureState | None = None, last: int | None = None
    ) -> tuple[Leaf, MixtureState | None]:
        """Compute the mixture's log-probabilities (B, T, V) and the new state.

        With a gate they are logits, which are not normalised.
        """
        matched = self.matched_after(tokens, state)
        if last is not None and matched is not None:
            matched = matched[:, -last:]
        log_probs, after = self.distributions(tokens, state, last)
        return self.joined(log_probs, matched), after

    def joined(self, log_probs: Sequence[Leaf], matched: Leaf | None) -> Leaf:
        """Mix the components' log-probabilities; see `interpolated`.

        Args:
            log_probs: of each component, (B, T, V).
            matched: the order matched before each token (B, T); None if nothing depends on it.
        """
        if self.gate is not None:
            return self.gate.logits(ops_of(log_probs[0]).stack(-2, *log_probs), matched)
        weights = self.log_weights_after(matched)
        weights = [each if isinstance(each, float) else each[..., None] for each in weights]
        return weighted_sum(log_probs, weights)

    def distributions(
        self, tokens: Leaf, state: MixtureState | None, last: int | None = None
    ) -> tuple[list[Leaf], MixtureState | None]:
        """Compute each component's log-probabilities (B, T, V), and the new state."""
        children = (None,) * len(self.components) if state is None else state.children
        log_probs, after = [], []
        for part, child in zip(self.components, children, strict=True):
            logits, child = part(tokens, child, last)
            log_probs.append(ops_of(logits).log_softmax(logits))
            after.append(child)
        return log_probs, None if state is None else MixtureState(tuple(after))

    def step(self, tokens: Sequence[int], state: MixtureState) -> tuple[np.ndarray, MixtureState]:
        logits, children = [], []
        for part, child in zip(self._in_order, state.children, strict=True):
            of_part, child = part.step(tokens, child)
            logits.append(of_part)
            children.append(child)
        matched = None
        if self.guide is not None:
            matched = self._in_order[self.guide].matched_by(children[self.guide])
        return self.joined_step(logits, matched), MixtureState(tuple(children))

    def joined_step(self, logits: Sequence[np.ndarray], matched: np.ndarray | None) -> np.ndarray:
        """Mix the components' logits of one step; see `step`.

        Args:
            logits: of each component, (B, V).
            matched: the order matched by each row (B,); None if nothing depends on it.
        """
        if self.gate is not None:
            return self.gate.logits_of_step(logits, matched)
        # (K, B or 1, 1)
        weights = self.weights if matched is None else self.table[:, matched, None]
        return mix_logits(logits, weights)

    def matched_after(self, tokens: Leaf, state: MixtureState | None) -> Leaf | None:
        """Compute the matched n-gram order after each token (B, T); None if it is not used."""
        if self.guide is None:
            return None
        child = None if state is None else state.children[self.guide]
        return self.components[self.guide].matched(tokens, child)

    def log_weights_after(self, matched: Leaf | None) -> Sequence[float | Leaf]:
        """Look up each component's log weight: a number, or (B, T) by matched order."""
        if matched is None:
            return self.log_weights
        return list(ops_of(matched).of(self.log_table, matched)[:, matched])

    def predictions(self, tokens: Leaf, state: MixtureState) -> tuple[Predictions, MixtureState]:
        if self.gate is not None:
            return super().predictions(tokens, state)
        weights = self.log_weights_after(self.matched_after(tokens, state))
        read = [
            part.predictions(tokens, child)
            for part, child in zip(self.components, state.children, strict=True)
        ]
        parts, after = zip(*read, strict=True)
        rows_at_once = max(1, LOGITS_AT_ONCE // self.vocab_size)
        return MixedPredictions(parts, weights, rows_at_once), MixtureState(after)

    @property
    def most_at_once(self) -> int:
        if self.gate is not None:
            return super().most_at_once // len(self.components)
        return min(part.most_at_once for part in self.components)

    @property
    def quick_ranks(self) -> bool:
        return self.gate is not None or all(part.quick_ranks for part in self.components)


class MixedPredictions(Predictions):
    """Predictions of a mixture that computes full rows only where needed.

    Args:
        parts: the components' predictions.
        log_weights: one for each, which may differ from place to place: a number or (B, T).
        rows_at_once: how many rows (V) there is memory for.
    """

    def __init__(
        self,
        parts: Sequence[Predictions],
        log_weights: Sequence[float | Leaf],
        rows_at_once: int,
    ) -> None:
        self.rows_at_once = rows_at_once
        # Components of weight 0 need not be evaluated.
        pairs = zip(parts, log_weights, strict=True)
        weighted = [(p, w) for p, w in pairs if not isinstance(w, float) or w > -math.inf]
        self.parts, self.log_weights = zip(*weighted, strict=True)

    def log_probs(self, targets: Leaf) -> Leaf:
        return weighted_sum([part.log_probs(targets) for part in self.parts], self.log_weights)

    def rows(self, places: Leaf) -> Leaf:
        weights = [
            each if isinstance(each, float) else each.flatten()[places, None]
            for each in self.log_weights
        ]
        return weighted_sum([part.rows(places) for part in self.parts], weights)

    def best(self) -> Leaf:
        one = self.parts[0].best()  # only for its shape and device
        best = [first_best(self.rows(some)) for some in self._some(_all_places(one))]
        return ops_of(one).along(0, *best).reshape(one.shape)

    def ranks(self, targets: Leaf) -> Leaf:
        return self._ranks_at(_all_places(targets), targets.flatten()).reshape(targets.shape)

    def _some(self, places: Leaf) -> list[Leaf]:
        """Split places (M,) into chunks whose rows fit in memory."""
        most = self.rows_at_once
        return [places[at : at + most] for at in range(0, len(places), most)]

    def _ranks_at(self, places: Leaf, targets: Leaf) -> Leaf:
        """Compute the ranks (M,) of flat targets at places (M,)."""
        ranks = [ranks_in(self.rows(p), targets[p]) for p in self._some(places)]
        return ops_of(targets).along(0, *ranks)

    def hits(self, targets: Leaf) -> Leaf:
        """Check whether each target is the most probable token, computing few full rows.

        A target that is every component's favourite is the mixture's too; one that is less
        probable than some component's favourite is not. Rows are computed only for the others.
        """
        mine = self.log_probs(targets)
        beaten = mine > math.inf  # nowhere yet
        sure = ~beaten
        for favourite in [part.best() for part in self.parts]:
            value = self.log_probs(favourite)
            beaten |= (value > mine) | ((value == mine) & (favourite < targets))
            sure &= favourite == targets
        unsure, hits = (~(sure | beaten)).flatten(), sure.flatten()
        places = _all_places(targets)[unsure]
        if len(places):
            hits[places] = self._ranks_at(places, targets.flatten()) == 0
        return hits.reshape(targets.shape)


def _all_places(like: Leaf) -> Leaf:
    """Number all elements of (B, T) from 0."""
    return ops_of(like).count(like, math.prod(like.shape))


def weighted_sum(log_probs: Sequence[Leaf], log_weights: Sequence[float | Leaf]) -> Leaf:
    """Compute the log of the weighted sum of probabilities, in float32 or wider.

    Args:
        log_probs: of each component.
        log_weights: a number for each, or one that broadcasts.
    """
    ops = ops_of(log_probs[0])
    terms = [
        lp + (weight if isinstance(weight, float) else ops.like(weight, lp))
        for lp, weight in zip(log_probs, log_weights, strict=True)
    ]
    return ops.log_of_sum(*terms)


def _least(limits: Iterable[int | None]) -> int | None:
    """Compute the minimum of the limits that are not None; None without any."""
    return min((limit for limit in limits if limit is not None), default=None)
