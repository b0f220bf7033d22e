"""Beam search: plain, in diverse groups, or in those of a plugin, batched over prompts.

At every step each live hypothesis is extended by every token that the filters leave. Of these
candidates, ranked by total log-probability, the `beams` best that do not end become the live
hypotheses of the next step. Candidates that end (by EOS or a stop string) are finished if they are
among the `beams` best. At `max_tokens` the live ones are finished too. A search stops when no live
hypothesis can still beat the n-th best finished one, whatever length it may reach. With as many
beams as there are texts it is exhaustive search.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from seqgen import hooks
from seqgen.engines.ops import without_gradients
from seqgen.generation.beam_groups import (
    Ending,
    Expansion,
    Fate,
    Group,
    SearchRules,
)
from seqgen.generation.continuation import DEAD_END
from seqgen.generation.hypotheses import Hypothesis, NBest
from seqgen.generation.processors import History, before_and_after, normalise
from seqgen.generation.text_batch import Row, prefill
from seqgen.hashing import hash64
from seqgen.models.distributions import require_numbers

if TYPE_CHECKING:
    from seqgen.models.inference import InferenceModel
    from seqgen.models.state import Opens

# The prompt's place, the group, and the fates of its best candidates.
Watch = Callable[[int, int, Sequence[Fate]], None]


class Search:
    """Beam search for one prompt: its groups of hypotheses and its state."""

    def __init__(self, source: Row, place: int, rules: SearchRules) -> None:
        self.ending, self.place = Ending(source, rules), place
        options = rules.options
        digest = int(hash64(options.seed or 0, source.prompt))
        root = Hypothesis(row=place, digest=digest)
        self.restricted = None if rules.restrict is None else rules.restrict(source, root)
        if self.restricted is not None:
            self.groups: list[Group] = [self.restricted]
            return
        kind = Group
        if options.stochastic:
            kind = hooks.load_method("search", "stochastic-beams", "--stochastic")
        self.groups = [
            kind(options, Hypothesis(row=place, digest=digest)) for _ in range(options.groups)
        ]

    @property
    def live(self) -> list[Hypothesis]:
        """All live hypotheses, group after group."""
        return [hypothesis for group in self.groups for hypothesis in group.live]

    def advance(self, expansion: Expansion, watch: Watch | None) -> None:
        """Extend all groups by one token; later groups are penalised for repeating earlier ones."""
        taken: dict[int, int] = {}
        self._before = self.live
        for number, group in enumerate(self.groups):
            if not group.live:
                continue
            considered, others = group.advance(expansion, taken, self.ending)
            if watch is not None:
                watch(self.place, number, [*considered, *others])
            for _, token, _, fate in considered:
                if fate == "live":
                    taken[token] = taken.get(token, 0) + 1

    def hypotheses(self) -> list[Hypothesis]:
        """Return the n best finished hypotheses, best first, without duplicates between groups.

        If no text could be finished, those that lack something required are returned, or else the
        best one that could not go on.
        """
        best = NBest(self.groups[0].best.n)
        for group in self.groups:
            for hypothesis in group.best.hypotheses:
                best.add(hypothesis)
        if not best.hypotheses and self.restricted is not None:
            best = self.restricted.failing
        if not best.hypotheses:
            dead = max(self._before, key=lambda hypothesis: hypothesis.logprob)
            self.ending.rules.finish(dead, DEAD_END)
            best.add(dead)
        return best.hypotheses


@without_gradients
def search(
    model: InferenceModel,
    sources: Sequence[Row],
    rules: SearchRules,
    watch: Watch | None = None,
    opens: Opens | None = None,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Run beam search for several prompts in one batch.

    Args:
        model: in evaluation mode.
        sources: the prompts.
        rules: how to search.
        watch: is shown the best candidates of every step.
        opens: opens a state for the sources' handles; None for a model that has no sources.

    Yields:
        The place of a prompt in `sources` and its hypotheses, the best first, as soon as they
        are certain.
    """
    options = rules.options
    if options.max_tokens == 0:
        for place in range(len(sources)):
            yield place, [Hypothesis(score=0.0, finish_reason=rules.at_limit)]
        return
    searches = [Search(source, place, rules) for place, source in enumerate(sources)]
    width = 2 * options.beams // options.groups + (options.beams if options.groups > 1 else 0)
    prompts, handles = [s.tokens for s in sources], [s.handle for s in sources]
    logits, state = prefill(model, prompts, opens, handles)
    # Before the first step the groups of a prompt share its one row.
    rows = [(owner, owner.groups[0].live[0]) for owner in searches]
    while True:
        log_probs = require_numbers(normalise(logits))  # (R, V)
        model_log_probs, filtered = before_and_after(
            rules.processors, _Histories(rows), log_probs, rules.outcomes
        )
        for row, (owner, hypothesis) in enumerate(rows):
            if owner.restricted is not None:
                owner.restricted.allow(hypothesis, filtered[row], owner.ending)
        rank = searches[0].groups[0].rank([row for _, row in rows], model_log_probs, filtered)
        expansion = Expansion(rank, model_log_probs, filtered, width)
        expansion.order([group for owner in searches for group in owner.groups])
        for owner in searches:
            owner.advance(expansion, watch)
            if not owner.live:
                yield owner.place, owner.hypotheses()
        searches = [owner for owner in searches if owner.live]
        if not searches:
            return
        rows = [(owner, row) for owner in searches for row in owner.live]
        rows = _kept_in_place(rows)
        state = state.select([row.row for _, row in rows])
        for place, (_, row) in enumerate(rows):
            row.row = place
        logits, state = model.step([row.tokens[-1] for _, row in rows], state)


class _Histories(Sequence[History]):
    """Token histories of the rows, built lazily because few filters read them."""

    def __init__(self, rows: Sequence[tuple[Search, Hypothesis]]) -> None:
        self._rows = rows

    @functools.cached_property
    def _read(self) -> list[History]:
        sources = [owner.ending.source for owner, _ in self._rows]
        return [
            History(source.tokens + row.tokens, len(source.tokens), overlap=source.overlap)
            for source, (_, row) in zip(sources, self._rows, strict=True)
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> History:
        return self._read[row]


def _kept_in_place(rows: list[tuple[Search, Hypothesis]]) -> list[tuple[Search, Hypothesis]]:
    """Reorder new rows so that as many as possible stay in their parent's row.

    A state whose rows keep their places copies little (see `KVCache.select`).
    """
    placed: list[tuple[Search, Hypothesis] | None] = [None] * len(rows)
    others = []
    for row in rows:
        place = row[1].row
        if place < len(placed) and placed[place] is None:
            placed[place] = row
        else:
            others.append(row)
    rest = iter(others)
    return [row or next(rest) for row in placed]
