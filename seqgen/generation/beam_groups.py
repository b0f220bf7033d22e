"""One beam of one prompt: ranking, pruning and finishing its hypotheses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from seqgen.generation.continuation import LIMIT
from seqgen.generation.hypotheses import Hypothesis, LengthNorm, NBest
from seqgen.generation.processors import IMPOSSIBLE
from seqgen.generation.text_batch import Row

if TYPE_CHECKING:
    from seqgen.generation.processors import Processor
    from seqgen.settings.generation import BeamOptions

# The least log-probability of an allowed token, so that totals stay finite and can be compared.
LEAST = -1e30
# What became of a candidate: its parent, its token, the token's log-probability, and "live",
# "finished" or "pruned".
Fate = tuple[Hypothesis, int, float, str]
# The fates of the candidates that were considered, and those of all others, which are computed only
# if a search tree is drawn.
Fates = tuple[list[Fate], Iterable[Fate]]
# A parent and a token: minus their total, which sorts the best first; the parent's place among the
# live hypotheses; the token; the total that ranks it; and the token's log-probability, first under
# the model, then after the filters.
Candidate = tuple[float, int, int, float, float, float]


# Whether the tokens written after a prompt end the text by what they say (a stop string).
Ends = Callable[[Row, Sequence[int]], bool]
# What the score of a finished text gains by its tokens: never above 0, or a search that stops
# when nothing can be better any more would stop too early.
Penalty = Callable[[Row, Sequence[int]], float]


@dataclass(frozen=True)
class SearchRules:
    """Options, filters and end conditions of a search: all that its prompts have in common.

    Attributes:
        options: how to search.
        processors: applied in this order; what they leave is possible. Plain searches rank by
            the model's own log-probabilities all the same, stochastic ones sample from theirs.
        reasons: why a text finishes, by the token that ends it.
        ends: finds stop strings.
        penalty: added to the score of a text that plain searches have finished.
        outcomes: makes one outcome of several tokens; see `constraint.TextConstraint.outcomes`.
        restrict: makes the beam of a prompt whose texts must contain something.
    """

    options: BeamOptions
    processors: Sequence[Processor] = ()
    reasons: Mapping[int, str] = field(default_factory=dict)
    ends: Ends | None = None
    penalty: Penalty | None = None
    outcomes: Processor | None = None
    restrict: Restrict | None = None

    @property
    def at_limit(self) -> str:
        """Finish reason of a text that reaches the token limit."""
        return self.reasons.get(LIMIT, "length")

    @cached_property
    def norm(self) -> LengthNorm:
        """Length normalisation of the scores."""
        return LengthNorm(self.options.length_norm, self.options.alpha)

    def finish(self, hypothesis: Hypothesis, reason: str) -> None:
        """Set the finish reason and score of a finished hypothesis, without the penalty."""
        hypothesis.finish_reason = reason
        hypothesis.score = hypothesis.logprob / self.norm(max(1, len(hypothesis.tokens)))


@dataclass(frozen=True)
class Ending:
    """End conditions of one prompt's texts, and the score of a finished text.

    A text ends by a token, by what the tokens say, or by their number.

    Attributes:
        source: the prompt.
        rules: of the search.
    """

    source: Row
    rules: SearchRules

    @cached_property
    def max_tokens(self) -> int:
        """Maximum number of tokens of a text: the lower of both limits."""
        most, own = self.rules.options.max_tokens, self.source.max_tokens
        return most if own is None else min(most, own)

    def __call__(self, parent: Hypothesis, token: int) -> str | None:
        """Return why `parent` with `token` ends but for its length, or None."""
        rules = self.rules
        if token in rules.reasons:
            return rules.reasons[token]
        if rules.ends is not None and rules.ends(self.source, (*parent.tokens, token)):
            return "stop"
        return None

    def penalise(self, hypothesis: Hypothesis) -> None:
        """Add the penalty to the score of a finished hypothesis."""
        if self.rules.penalty is not None:
            hypothesis.score += self.rules.penalty(self.source, hypothesis.tokens)


class Expansion:
    """Most probable next tokens of every row, in the order in which groups consider them."""

    def __init__(
        self, rank: np.ndarray, model_log_probs: np.ndarray, filtered: np.ndarray, width: int
    ) -> None:
        """Take what ranks a row's candidates, and both log-probabilities, each (R, V)."""
        self._rank, self._model_log_probs, self._filtered = rank, model_log_probs, filtered
        self.widen(width)

    def widen(self, width: int) -> None:
        """Keep the top `width` tokens of each row, and ties with the last of them."""
        self.width = min(width, self._rank.shape[-1])
        rows, tokens = likeliest_of_rows(self._rank, self.width)
        at = rows, tokens
        self._tokens = tokens  # (N,), row after row
        self._values = self._rank[at], self._model_log_probs[at], self._filtered[at]  # (N,) each
        edges = np.searchsorted(rows, np.arange(len(self._rank) + 1))
        self._begins, self._counts = edges[:-1], np.diff(edges)  # (R,) each
        self._known: dict[int, list[Candidate]] = {}

    @property
    def complete(self) -> bool:
        """Check whether every possible token is included."""
        return self.width == self._rank.shape[-1]

    def order(self, groups: Sequence[Group]) -> None:
        """Sort the candidates of all groups at once, for `candidates`."""
        live = [(number, h) for number, group in enumerate(groups) for h in group.live]
        rows = [h.row for _, h in live]
        counts = self._counts[rows]
        parent = np.repeat(np.arange(len(live)), counts)  # (M,), of each candidate
        first = np.repeat(self._begins[rows] - counts.cumsum() + counts, counts)
        at = first + np.arange(parent.size)  # its place among the N
        tokens = self._tokens[at]
        rank, logprob, filtered = (values[at] for values in self._values)
        score = np.array([-h.logprob for _, h in live])[parent] - rank.astype(np.float64)
        of_parent = np.array([number for number, _ in live])
        order = np.lexsort((tokens, parent, score, of_parent[parent]))
        places = np.array([place for group in groups for place in range(len(group.live))])
        columns = score, places[parent], tokens, rank, logprob, filtered
        ordered = list(zip(*(column[order].tolist() for column in columns), strict=True))
        ends = np.bincount(of_parent, counts, len(groups)).astype(int).cumsum().tolist()
        for group, begin, end in zip(groups, [0, *ends], ends, strict=False):
            self._known[id(group)] = ordered[begin:end]

    def best(self, hypothesis: Hypothesis, among: np.ndarray) -> int | None:
        """Find a hypothesis' best next token among those that the mask `among` (V,) allows."""
        rank = np.where(among, self._rank[hypothesis.row], IMPOSSIBLE)
        token = int(rank.argmax())
        return token if rank[token] > IMPOSSIBLE else None

    def candidate(self, hypothesis: Hypothesis, place: int, token: int) -> Candidate:
        """Make the candidate that extends the live hypothesis at `place` by a token."""
        arrays = self._rank, self._model_log_probs, self._filtered
        rank, *others = (values[hypothesis.row, token].item() for values in arrays)
        return -hypothesis.logprob - rank, place, token, rank, *others

    def candidates(self, group: Group) -> list[Candidate]:
        """List the candidates of a group's live hypotheses, best first."""
        if id(group) not in self._known:
            self.order([group])
        return self._known[id(group)]


# How many blocks a row is cut into for each token that is wanted of it.
BLOCKS = 3


def likeliest_of_rows(rank: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the indices of the `width` largest values in each row, and of ties with the last.

    The largest values of any `width` blocks of a row are at most its `width` largest, so most
    of a large vocabulary is compared with a bound, and not sorted.

    Args:
        rank: (R, V); `IMPOSSIBLE` is never among them.
        width: from 1 to V.

    Returns:
        Their rows, which ascend, and their columns.
    """
    vocab_size = rank.shape[1]
    size = max(1, vocab_size // (BLOCKS * width))
    count = vocab_size // size
    blocks = rank[:, : count * size].reshape(len(rank), count, size)
    largest = np.maximum.reduce(blocks, -1)  # (R, blocks)
    bound = np.partition(largest, -width, axis=-1)[:, -width, None]  # (R, 1)
    chosen = np.flatnonzero(rank >= np.maximum(bound, np.finfo(rank.dtype).min))
    rows, columns = np.divmod(chosen, vocab_size)
    values = rank[rows, columns]
    # Which of equals a partition takes is chance, so all of them are taken.
    order = np.lexsort((-values, rows))
    edges = np.searchsorted(rows, np.arange(len(rank) + 1))
    last = np.minimum(edges[:-1] + width, edges[1:]) - 1  # (R,); one before for an empty row
    least = values[order][last] if values.size else values[:0]
    kept = values >= least[rows] if values.size else slice(None)
    return rows[kept], columns[kept]


class Group:
    """One beam of one prompt: its live hypotheses and those that are finished."""

    def __init__(self, options: BeamOptions, root: Hypothesis) -> None:
        self.diversity, self.size = options.diversity, options.beams // options.groups
        self.live, self.best = [root], NBest(options.nbest)

    @staticmethod
    def rank(
        rows: Sequence[Hypothesis], model_log_probs: np.ndarray, filtered: np.ndarray
    ) -> np.ndarray:
        """Compute the scores that rank the next tokens (R, V) within each row."""
        ranks = np.maximum(model_log_probs, LEAST)
        np.copyto(ranks, IMPOSSIBLE, where=filtered == IMPOSSIBLE)
        return ranks

    def advance(self, expansion: Expansion, taken: dict[int, int], ending: Ending) -> Fates:
        """Extend the beam by one token; return the fates of the best candidates, best first.

        Args:
            expansion: of the rows.
            taken: how many hypotheses of earlier groups took each token at this step.
            ending: what finishes a hypothesis.
        """
        candidates = expansion.candidates(self)
        if taken:
            candidates = self._diverse(candidates, taken)
        parents, self.live, fates = self.live, [], []
        for order, (_, place, token, _, logprob, _) in enumerate(candidates):
            if order >= self.size and len(self.live) == self.size:
                break
            parent, fate = parents[place], "pruned"
            reason = ending(parent, token)
            if reason is None and len(self.live) < self.size:
                self.live.append(extend_hypothesis(parent, token, logprob))
                fate = "live"
            elif reason is not None and order < self.size:
                self._finish(extend_hypothesis(parent, token, logprob), reason, ending)
                fate = "finished"
            fates.append((parent, token, logprob, fate))
        if len(self.live) < self.size and not expansion.complete:
            # Stop strings ended too many of them: start again from more.
            self.live = parents
            expansion.widen(4 * expansion.width)
            return self.advance(expansion, taken, ending)
        self._stop_if_certain(ending)
        others = candidates[len(fates) :]
        pruned = ((parents[at], token, logprob, "pruned") for _, at, token, _, logprob, _ in others)
        return fates, pruned

    def _diverse(self, candidates: list[Candidate], taken: dict[int, int]) -> list[Candidate]:
        """Sort candidates after subtracting the diversity penalty for tokens already taken."""
        return sorted(
            (score + self.diversity * taken.get(token, 0), place, token, *rest)
            for score, place, token, *rest in candidates
        )

    def _stop_if_certain(self, ending: Ending) -> None:
        if not self.live:
            return
        length = len(self.live[0].tokens)
        if length == ending.max_tokens:
            for hypothesis in self.live:
                self._finish(hypothesis, ending.rules.at_limit, ending)
            self.live = []
        elif self.best.full:
            likeliest = max(hypothesis.logprob for hypothesis in self.live)
            if self.best.beats(ending.rules.norm.bound(likeliest, length, ending.max_tokens)):
                self.live = []

    def _finish(self, hypothesis: Hypothesis, reason: str, ending: Ending) -> None:
        ending.rules.finish(hypothesis, reason)
        # A penalty may need a pass over the whole text, and it only lowers the score. A hypothesis
        # that is worse than the n best without it needs none.
        if not self.best.beats(hypothesis.score):
            ending.penalise(hypothesis)
            self.best.add(hypothesis)


class RestrictedGroup(Group, ABC):
    """Beam whose texts must satisfy a requirement; see `constraint.Requirement`.

    Attributes:
        failing: the best finished hypotheses that lack something, for want of any that does not.
    """

    failing: NBest

    @abstractmethod
    def allow(self, hypothesis: Hypothesis, log_probs: np.ndarray, ending: Ending) -> None:
        """Mask the tokens of a row (V,) that would make the requirement impossible."""


# The beam of a prompt's texts that must contain something, from its first hypothesis on, or None.
Restrict = Callable[[Row, Hypothesis], RestrictedGroup | None]


def extend_hypothesis(parent: Hypothesis, token: int, logprob: float) -> Hypothesis:
    """Make the child of `parent` with one more token; its state is still in the parent's row."""
    tokens = (*parent.tokens, token)
    return Hypothesis(tokens=tokens, logprob=parent.logprob + logprob, row=parent.row)
