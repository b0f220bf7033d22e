"""One beam of one prompt: how candidates are ranked, kept in the beam, or finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seqgen.configs import Bounds, require, short
from seqgen.decoding.hypotheses import Best, Hypothesis, LengthNorm
from seqgen.decoding.processors import IMPOSSIBLE
from seqgen.hashing import absorb

# The least log-probability of an allowed token, so that totals stay finite and can be compared.
LEAST = -1e30
# Powers of longer lengths would overflow.
MOST_TOKENS = 10**9
MOST_BEAMS = 10**5
MOST_DIVERSITY = 1e6
# A candidate's parent, its token, that token's log-probability, and "live", "finished", "pruned".
Fate = tuple[Hypothesis, int, float, str]


@dataclass(frozen=True, kw_only=True)
class BeamConfig:
    """How to search.

    Attributes:
        beams: live hypotheses K, over all groups.
        nbest: hypotheses to find.
        norm: how lengths are weighed.
        max_tokens: tokens of a text at most.
        groups: G groups of K / G beams, each a search of its own (Vijayakumar et al. 2018).
        diversity: what a candidate of one group loses, in nats, for each earlier group's
            hypothesis that takes the same token at this step. It ranks candidates and is no
            part of any total.
        stochastic: sample K texts without replacement by Gumbel noise (Kool et al. 2019).
        seed: of that noise: hash(seed, prompt, tokens so far, token).
    """

    beams: int = 5
    nbest: int = 1
    norm: LengthNorm = LengthNorm()
    max_tokens: int = 100
    groups: int = 1
    diversity: float = 0.5
    stochastic: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        Bounds(low=1, high=MOST_BEAMS).check("--nbest", self.nbest)
        Bounds(low=1, high=MOST_BEAMS).check("--beams", self.beams)
        few = self.nbest <= self.beams
        require(few, f"--nbest must be from 1 to --beams {self.beams}, not {short(self.nbest)}")
        Bounds(low=0, high=MOST_TOKENS).check("--max-tokens", self.max_tokens)
        divides = self.groups >= 1 and self.beams % self.groups == 0
        divisor = short(self.groups)
        require(divides, f"--groups must divide --beams {self.beams}, and {divisor} does not")
        Bounds(low=0, high=MOST_DIVERSITY).check("--diversity", self.diversity)
        alone = not self.stochastic or self.groups == 1
        require(alone, "--stochastic cannot be combined with --groups")


@dataclass(frozen=True)
class Source:
    """What one search is for.

    Attributes:
        number: the prompt's number i, which stochastic noise depends on.
        tokens: the prompt's ids, with the start symbol first.
        handle: the number of the source that it is written from; equal sources have the same.
    """

    number: int
    tokens: tuple[int, ...]
    handle: int = 0


# Whether the tokens written after a prompt end the text by what they say (a stop string).
Ends = Callable[[Source, Sequence[int]], bool]


@dataclass(frozen=True)
class Ending:
    """What ends a text after a prompt: a token, what the tokens say, or their number."""

    source: Source
    eos_id: int | None
    ends: Ends | None
    max_tokens: int

    def __call__(self, parent: Hypothesis, token: int) -> str | None:
        """Return why `parent` with `token` ends but for its length, or None."""
        if token == self.eos_id:
            return "eos"
        if self.ends is not None and self.ends(self.source, (*parent.tokens, token)):
            return "stop"
        return None


class Expansion:
    """The most probable next tokens of every row, as Python numbers."""

    def __init__(
        self, rank: np.ndarray, model_log_probs: np.ndarray, filtered: np.ndarray, width: int
    ) -> None:
        """Take what ranks a row's candidates, and both log-probabilities, each (R, V)."""
        self._rank, self._model_log_probs, self._filtered = rank, model_log_probs, filtered
        self.widen(width)

    def widen(self, width: int) -> None:
        """Take `width` tokens of each row, and those equal to the last of them."""
        self.width = min(width, self._rank.shape[-1])
        least = np.partition(self._rank, -self.width, axis=-1)[:, -self.width, None]  # (R, 1)
        # A partition picks arbitrarily among equals, so all of them are taken.
        chosen = (self._rank >= least) & (self._rank > IMPOSSIBLE)
        rows, tokens = chosen.nonzero()
        at = rows, tokens
        each = zip(
            tokens.tolist(),
            self._rank[at].tolist(),
            self._model_log_probs[at].tolist(),
            self._filtered[at].tolist(),
            strict=True,
        )
        self.rows: list[list[tuple[int, float, float, float]]] = [[] for _ in self._rank]
        for row, candidate in zip(rows.tolist(), each, strict=True):
            self.rows[row].append(candidate)

    @property
    def complete(self) -> bool:
        """Whether every possible token is there."""
        return self.width == self._rank.shape[-1]


class Group:
    """One beam of one prompt: its live hypotheses and those that are finished."""

    def __init__(self, config: BeamConfig, root: Hypothesis) -> None:
        self.config, self.size = config, config.beams // config.groups
        self.live, self.best = [root], Best(config.nbest)

    @staticmethod
    def rank(
        rows: Sequence[Hypothesis], model_log_probs: np.ndarray, filtered: np.ndarray
    ) -> np.ndarray:
        """Return what ranks the next tokens (R, V) of each row among themselves."""
        return np.where(filtered == IMPOSSIBLE, IMPOSSIBLE, np.maximum(model_log_probs, LEAST))

    def advance(self, expansion: Expansion, taken: dict[int, int], ending: Ending) -> list[Fate]:
        """Take one step; return the fates of the best candidates.

        Args:
            expansion: of the rows.
            taken: how many hypotheses of earlier groups took each token at this step.
            ending: what finishes a hypothesis.
        """
        diversity = self.config.diversity
        candidates = sorted(
            (-parent.logprob - rank + diversity * taken.get(token, 0), place, token, own)
            for place, parent in enumerate(self.live)
            for token, rank, own, _ in expansion.rows[parent.row]
        )
        parents, self.live, fates = self.live, [], []
        for order, (_, place, token, own) in enumerate(candidates):
            parent, fate = parents[place], "pruned"
            if order < self.size or len(self.live) < self.size:
                reason = ending(parent, token)
                if reason is None and len(self.live) < self.size:
                    self.live.append(_extended(parent, token, own))
                    fate = "live"
                elif reason is not None and order < self.size:
                    self._finish(_extended(parent, token, own), reason)
                    fate = "finished"
            fates.append((parent, token, own, fate))
        if len(self.live) < self.size and not expansion.complete:
            # Stop strings ended too many of them: start again from more.
            self.live = parents
            expansion.widen(4 * expansion.width)
            return self.advance(expansion, taken, ending)
        self._stop_if_certain()
        return fates

    def _stop_if_certain(self) -> None:
        if not self.live:
            return
        config, length = self.config, len(self.live[0].tokens)
        likeliest = max(hypothesis.logprob for hypothesis in self.live)
        if length == config.max_tokens:
            for hypothesis in self.live:
                self._finish(hypothesis, "length")
            self.live = []
        elif self.best.beats(config.norm.bound(likeliest, length, config.max_tokens)):
            self.live = []

    def _finish(self, hypothesis: Hypothesis, reason: str) -> None:
        hypothesis.score = hypothesis.logprob / self.config.norm(len(hypothesis.tokens))
        hypothesis.finish_reason = reason
        self.best.add(hypothesis)


def _extended(parent: Hypothesis, token: int, logprob: float) -> Hypothesis:
    """Return the hypothesis longer by a token; it stands in its parent's row."""
    tokens = (*parent.tokens, token)
    return Hypothesis(tokens=tokens, logprob=parent.logprob + logprob, row=parent.row)


class StochasticGroup(Group):
    """Top-k by Gumbel noise: a sample of whole texts without replacement (Kool et al. 2019).

    A hypothesis' perturbed log-probability is that of the best text it leads to; finished ones
    keep their places in the beam until all are.
    """

    def __init__(self, config: BeamConfig, root: Hypothesis) -> None:
        super().__init__(config, root)
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
        return conditioned(phi + noise, parents)

    def advance(self, expansion: Expansion, taken: dict[int, int], ending: Ending) -> list[Fate]:
        places: list[tuple[float, tuple[int, ...], Hypothesis, Fate | None]] = [
            (-leaf.perturbed, leaf.tokens, leaf, None) for leaf in self.leaves
        ]
        for parent in self.live:
            for token, rank, own, filtered in expansion.rows[parent.row]:
                new = _extended(parent, token, own)
                new.weight, new.perturbed = parent.weight + filtered, rank
                places.append((-rank, new.tokens, new, (parent, token, own, "pruned")))
        places.sort(key=lambda place: place[:2])
        self.leaves, self.live, fates = [], [], []
        for order, (_, _, hypothesis, fate) in enumerate(places):
            if order < self.size:
                if fate is not None:
                    parent, token, own, _ = fate
                    self._check_end(hypothesis, parent, ending)
                    end = "finished" if hypothesis.finish_reason else "live"
                    fate = parent, token, own, end
                (self.leaves if hypothesis.finish_reason else self.live).append(hypothesis)
            if fate is not None:
                fates.append(fate)
        if not self.live:
            for leaf in self.leaves:
                self.best.add(leaf)
        return fates

    def _check_end(self, hypothesis: Hypothesis, parent: Hypothesis, ending: Ending) -> None:
        token = hypothesis.tokens[-1]
        hypothesis.digest = int(absorb(np.uint64(parent.digest), token))
        reason = ending(parent, token)
        if reason is None and len(hypothesis.tokens) == ending.max_tokens:
            reason = "length"
        if reason is not None:
            hypothesis.finish_reason, hypothesis.score = reason, hypothesis.perturbed


def gumbel(digests: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return standard Gumbel noise for each token after each prefix, computed by hashing."""
    bits = absorb(digests, tokens) >> np.uint64(11)
    uniform = (bits.astype(np.float64) + 0.5) * 2.0**-53  # in (0, 1)
    return -np.log(-np.log(uniform))


def conditioned(perturbed: np.ndarray, maxima: np.ndarray) -> np.ndarray:
    """Return Gumbel variables (R, V) given that the largest of each row is `maxima` (R, 1).

    Kool et al. (2019), appendix B.3, which is exact and does not overflow.
    """
    with np.errstate(divide="ignore"):
        gap = perturbed - perturbed.max(-1, keepdims=True)  # at most 0
        v = maxima - perturbed + np.log1p(-np.exp(gap))
    moved = maxima - np.maximum(v, 0) - np.log1p(np.exp(-np.abs(v)))
    return np.where(perturbed == -np.inf, -np.inf, moved)
