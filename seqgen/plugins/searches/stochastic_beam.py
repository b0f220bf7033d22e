"""Stochastic beam search, whose hypotheses are a sample without replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqgen.generation.beam_groups import Ending, Expansion, Fate, Fates, Group, extend_hypothesis
from seqgen.hashing import absorb

if TYPE_CHECKING:
    from seqgen.generation.hypotheses import Hypothesis
    from seqgen.settings.generation import BeamOptions


class StochasticGroup(Group):
    """Beam that samples whole texts without replacement by Gumbel top-k (Kool et al. 2019).

    A hypothesis' perturbed log-probability is that of the best text it leads to; finished ones
    keep their places in the beam until all are.
    """

    def __init__(self, options: BeamOptions, root: Hypothesis) -> None:
        super().__init__(options, root)
        self.leaves: list[Hypothesis] = []

    @staticmethod
    def rank(
        rows: Sequence[Hypothesis], model_log_probs: np.ndarray, filtered: np.ndarray
    ) -> np.ndarray:
        weights = np.array([h.weight for h in rows])[:, None]
        parents = np.array([h.perturbed for h in rows])[:, None]
        digests = np.array([h.digest for h in rows], dtype=np.uint64)[:, None]
        phi = weights + filtered.astype(np.float64)  # (R, V)
        noise = gumbel(digests, np.arange(phi.shape[1])[None])
        return condition_on_maxima(phi + noise, parents)

    def advance(self, expansion: Expansion, taken: dict[int, int], ending: Ending) -> Fates:
        places: list[tuple[float, tuple[int, ...], Hypothesis, Fate | None]] = [
            (-leaf.perturbed, leaf.tokens, leaf, None) for leaf in self.leaves
        ]
        for _, place, token, rank, logprob, filtered in expansion.candidates(self):
            parent = self.live[place]
            new = extend_hypothesis(parent, token, logprob)
            new.weight, new.perturbed = parent.weight + filtered, rank
            places.append((-rank, new.tokens, new, (parent, token, logprob, "pruned")))
        places.sort(key=lambda place: place[:2])
        self.leaves, self.live, fates = [], [], []
        for order, (_, _, hypothesis, fate) in enumerate(places):
            if order < self.size:
                if fate is not None:
                    parent, token, logprob, _ = fate
                    self._check_end(hypothesis, parent, ending)
                    end = "finished" if hypothesis.finish_reason else "live"
                    fate = parent, token, logprob, end
                (self.leaves if hypothesis.finish_reason else self.live).append(hypothesis)
            if fate is not None:
                fates.append(fate)
        if not self.live:
            for leaf in self.leaves:
                self.best.add(leaf)
        return fates, ()

    def _check_end(self, hypothesis: Hypothesis, parent: Hypothesis, ending: Ending) -> None:
        token = hypothesis.tokens[-1]
        hypothesis.digest = int(absorb(np.uint64(parent.digest), token))
        reason = ending(parent, token)
        if reason is None and len(hypothesis.tokens) == ending.max_tokens:
            reason = ending.rules.at_limit
        if reason is not None:
            hypothesis.finish_reason, hypothesis.score = reason, hypothesis.perturbed


def gumbel(digests: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Compute standard Gumbel noise for each token after each prefix, by hashing."""
    bits = absorb(digests, tokens) >> np.uint64(11)
    uniform = (bits.astype(np.float64) + 0.5) * 2.0**-53  # in (0, 1)
    return -np.log(-np.log(uniform))


def condition_on_maxima(perturbed: np.ndarray, maxima: np.ndarray) -> np.ndarray:
    """Condition Gumbel variables (R, V) on row maxima `maxima` (R, 1).

    Kool et al. (2019), appendix B.3, which is exact and does not overflow.
    """
    with np.errstate(divide="ignore"):
        gap = perturbed - perturbed.max(-1, keepdims=True)  # at most 0
        v = maxima - perturbed + np.log1p(-np.exp(gap))
    moved = maxima - np.maximum(v, 0) - np.log1p(np.exp(-np.abs(v)))
    return np.where(perturbed == -np.inf, -np.inf, moved)
