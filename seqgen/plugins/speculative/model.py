"""Speculative decoding: a transformer that reads draft tokens along with its own.

One token takes a transformer about as long to read as a few, since all of its matrices pass through
the processor either way. So whenever a token must be read, draft tokens that may follow it are read
with it (Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding"; Saxena
2023, "Prompt Lookup Decoding"). As long as the caller then draws the draft tokens, the logits after
them are there already.

Nothing is drawn here. The caller draws from the same logits, bit for bit, as without drafts, so
that the text is the same, where the algorithms above keep its distribution only. For that, several
tokens must be read to the bits of reading them one by one (`TransformerArrays.read_slots`).

All rows of a batch are at the same step, so that a slot of the key-value cache is the same step in
every row. Draft tokens of a row take the slots after the newest one, and rejected ones are
overwritten.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from seqgen.engines.ops import Leaf, ops_of
from seqgen.errors import UsageError
from seqgen.models.inference import InferenceModel
from seqgen.models.state import Rows, State
from seqgen.models.transformer.arrays import TransformerArrays

if TYPE_CHECKING:
    from seqgen.models.transformer.kv_cache import KVCache
    from seqgen.plugins.speculative.drafters import Drafter
    from seqgen.store.loaded import LoadedModel

# The longest draft of a draft model.
MOST_DRAFTED = 8
# Weight of the newest measurement in the running mean of an acceptance rate, or of a time.
NEWEST = 1 / 8
# Before the first measurement: the cost of a draft token, where one token alone costs 1, and the
# acceptance rate.
COST, RATE = 0.2, 0.5
# After so many reads without draft tokens their cost is taken to be unknown again.
FORGOTTEN = 32


@dataclass
class DraftCounts:
    """Draft tokens, over all texts.

    Attributes:
        drafted: those that were read.
        accepted: those of them that were then drawn.
    """

    drafted: int = 0
    accepted: int = 0


class ReadCosts:
    """Time of a read by its number of tokens, measured as texts are written.

    It decides how many tokens are drafted, and so the speed, but nothing else.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._single = 0  # reads of the fewest tokens since one of more

    def note(self, tokens: int, seconds: float) -> None:
        """Add a measurement; what took longer than before may have been disturbed."""
        before = self._seconds.get(tokens, seconds)
        more = min(seconds, 2 * before) - before
        self._seconds[tokens] = before + more * (NEWEST if more > 0 else 1 / 2)
        self._single = self._single + 1 if tokens == min(self._seconds) else 0
        if self._single == FORGOTTEN and len(self._seconds) > 1:
            del self._seconds[max(self._seconds)]
            self._single = 0

    def of_one_more(self) -> float:
        """Estimate the time of one more token, where one token alone takes 1."""
        fewest, most = min(self._seconds, default=1), max(self._seconds, default=1)
        if fewest == most:
            return COST
        each = (self._seconds[most] - self._seconds[fewest]) / (most - fewest)
        alone = self._seconds[fewest] - (fewest - 1) * each
        return min(max(each / alone, 0.02), 1.0) if alone > 0 else 1.0


@dataclass
class DraftedRow:
    """Draft tokens that one row has read, and its acceptance rates.

    Attributes:
        ahead: draft tokens, each with the logits (V,) after it.
        expected: the first token of the next draft, and the kind of draft.
        rates: acceptance rates by kind of draft.
    """

    ahead: list[tuple[int, np.ndarray]] = field(default_factory=list)
    expected: tuple[int, Hashable] | None = None
    rates: dict[Hashable, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Acceptance rate of the next draft token; 0 without one."""
        return 0.0 if self.expected is None else self.rates.get(self.expected[1], RATE)

    def take(self, token: int) -> np.ndarray | None:
        """Take the next token; return the logits after it, or None if it must be read."""
        if self.expected is not None:
            drafted, kind = self.expected
            self.rates[kind] = self.rate + NEWEST * ((drafted == token) - self.rate)
        if self.ahead and self.ahead[0][0] == token:
            return self.ahead.pop(0)[1]
        self.ahead = []
        return None

    def copy(self) -> DraftedRow:
        """Copy it."""
        return DraftedRow(list(self.ahead), self.expected, dict(self.rates))


@dataclass
class SpeculativeState(State):
    """State of a transformer that reads draft tokens.

    Attributes:
        cache: after the tokens that were drawn; what was read ahead is in the slots after them.
        drafts: the drafter's.
        rows: what each row has read ahead.
    """

    cache: KVCache
    drafts: State
    rows: list[DraftedRow]

    @property
    def reach(self) -> int:
        """Number of slots after the newest that are in use."""
        return max((len(row.ahead) for row in self.rows), default=0)

    def without_ahead(self) -> SpeculativeState:
        """Forget what was read ahead."""
        for row in self.rows:
            row.ahead = []
        return self

    def select(self, rows: Rows) -> SpeculativeState:
        rows = list(rows)
        if rows != sorted(set(rows)):  # copies share the slots before the newest, and none after
            self.without_ahead()
        reach = self.reach
        self.cache.end += reach
        cache = self.cache.select(rows)
        cache.end -= reach
        return SpeculativeState(
            cache, self.drafts.select(rows), [self.rows[row].copy() for row in rows]
        )

    def copy(self) -> SpeculativeState:
        copies = [row.copy() for row in self.rows]
        return SpeculativeState(self.cache.copy(), self.drafts.copy(), copies)

    @classmethod
    def cat(cls, states: Sequence[SpeculativeState]) -> SpeculativeState:
        states = [state.without_ahead() for state in states]
        caches, drafts = [state.cache for state in states], [state.drafts for state in states]
        rows = [row for state in states for row in state.rows]
        return cls(type(caches[0]).cat(caches), type(drafts[0]).cat(drafts), rows)


class SpeculativeModel(InferenceModel):
    """Transformer that reads the tokens of a drafter with its own.

    Args:
        model: the transformer, over arrays or in torch.
        reader: the same over arrays.
        drafter: drafts tokens.
        most: the longest draft.
        counts: of draft tokens.
    """

    def __init__(
        self,
        model: InferenceModel,
        reader: TransformerArrays,
        drafter: Drafter,
        most: int,
        counts: DraftCounts,
    ) -> None:
        self.model, self.reader, self.drafter = model, reader, drafter
        self.most, self.counts, self.costs = most, counts, ReadCosts()
        self.config, self.window = model.config, model.window

    @property
    def precision(self) -> str:
        return self.model.precision

    @property
    def most_together(self) -> int:
        return self.model.most_together

    def parameter_count(self) -> int:
        return self.model.parameter_count()

    def ids(self, ids: np.ndarray) -> Leaf:
        return self.model.ids(ids)

    def start(self, batch: int, stride: int | None = None) -> SpeculativeState:
        rows = [DraftedRow() for _ in range(batch)]
        return SpeculativeState(self.model.start(batch, stride), self.drafter.start(batch), rows)

    def __call__(
        self, tokens: Leaf, state: SpeculativeState | None = None, last: int | None = None
    ) -> tuple[Leaf, SpeculativeState | None]:
        if state is None:
            return self.model(tokens, None, last)
        logits, cache = self.model(tokens, state.cache, last)
        drafts = self.drafter.read(ops_of(tokens).array(tokens), state.drafts)
        return logits, self._expecting(SpeculativeState(cache, drafts, state.without_ahead().rows))

    def read_together(
        self, prompts: Sequence[Sequence[int]]
    ) -> tuple[np.ndarray, SpeculativeState]:
        logits, cache = self.model.read_together(prompts)
        one = [self.drafter.read(np.array([ids]), self.drafter.start(1)) for ids in prompts]
        rows = [DraftedRow() for _ in prompts]
        return logits, self._expecting(SpeculativeState(cache, type(one[0]).cat(one), rows))

    def step(
        self, tokens: Sequence[int], state: SpeculativeState
    ) -> tuple[np.ndarray, SpeculativeState]:
        reach = state.reach  # before a row takes the token in the first of these slots
        found = [row.take(token) for row, token in zip(state.rows, tokens, strict=True)]
        unread = [row for row, logits in enumerate(found) if logits is None]
        self.counts.accepted += len(found) - len(unread)
        state.drafts = self.drafter.read(np.array(tokens)[:, None], state.drafts)
        self._expecting(state)
        room = [self.window - state.cache.length(row) for row in range(len(tokens))]
        if 0 in room:  # a full row begins its window anew; what others have read ahead stays
            if reach:
                _make_room(state.cache, reach, 1)
            logits, state.cache = self.model.step(tokens, state.cache)
            return logits, state
        began = time.perf_counter()
        drafts = self._drafts(unread, room, state)
        pieces = {row: [tokens[row], *drafts[row]] for row in unread}
        if len(unread) == len(tokens) and not any(drafts):
            logits, state.cache = self.model.step(tokens, state.cache)
        else:
            logits = self._read(tokens, pieces, found, state, reach)
        if unread:
            self.costs.note(sum(map(len, pieces.values())), time.perf_counter() - began)
        return logits, state

    def _expecting(self, state: SpeculativeState) -> SpeculativeState:
        """Note the next draft token of every row."""
        drafts = self.drafter.draft([1] * len(state.rows), state.drafts)
        every = zip(state.rows, drafts, self.drafter.draft_kinds(state.drafts), strict=True)
        for row, draft, kind in every:
            row.expected = (draft[0], kind) if draft else None
        return state

    def _drafts(
        self, unread: Sequence[int], room: Sequence[int], state: SpeculativeState
    ) -> list[list[int]]:
        """Draft as many tokens for each unread row as are worth their time.

        `room` says how many tokens each row can still read, its next one included.
        """
        rates, cost = [row.rate for row in state.rows], self.costs.of_one_more()
        every, counts = math.prod(rates), [0] * len(rates)
        for row in unread:
            most = min(room[row] - 1, self.most)
            counts[row] = draft_length(rates[row], every, cost, most)
        if not any(counts):
            return [[] for _ in counts]
        drafts = self.drafter.draft(counts, state.drafts)
        self.counts.drafted += sum(map(len, drafts))
        return drafts

    def _read(
        self,
        tokens: Sequence[int],
        pieces: Mapping[int, Sequence[int]],
        found: list[np.ndarray | None],
        state: SpeculativeState,
        reach: int,
    ) -> np.ndarray:
        """Read the next token of some rows and the draft after it; return the logits (B, V).

        Args:
            tokens: the next token of each row.
            pieces: for some rows that token and its draft.
            found: the logits (V,) of the other rows.
            state: is changed in place.
            reach: how many slots after the newest are in use.
        """
        cache = state.cache
        if not cache.is_of_arrays:
            cache = state.cache = cache.as_arrays()
        _make_room(cache, reach, max(map(len, pieces.values()), default=1))
        cache.append(np.array(tokens)[:, None])
        if pieces:
            rows = [row for row, ids in pieces.items() for _ in ids]
            slots = [cache.end - 1 + place for ids in pieces.values() for place in range(len(ids))]
            ids = np.concatenate([*pieces.values()])
            features = self.reader.read_slots(ids, rows, slots, cache)
            logits = self.reader.logits(features, ids[:, None], None)[:, 0]  # (N, V)
            ends = np.cumsum([len(ids) for ids in pieces.values()])
            for row, own in zip(pieces, np.split(logits, ends[:-1]), strict=True):
                found[row] = own[0]
                state.rows[row].ahead = [*zip(pieces[row][1:], own[1:], strict=True)]
        return np.stack(found)


def _make_room(cache: KVCache, reach: int, more: int) -> None:
    """Have room for more slots; if slots have to move, then with those that are read ahead.

    Args:
        cache: is changed in place.
        reach: how many slots after the newest are in use.
        more: how many are wanted after these.
    """
    cache.end += reach
    cache.append(np.zeros((len(cache.starts), more), np.int64))
    cache.end -= reach + more


def draft_length(rate: float, every: float, cost: float, most: int) -> int:
    """Choose the length of a row's draft, so that each of its tokens is worth the time to read it.

    An accepted one saves its own part of a later read, and all of that read if those of every row
    are accepted. Draft tokens are added as long as that is more, for its time, than what the read
    gives so far.

    Args:
        rate: acceptance rate of the row.
        every: chance that the draft tokens of all rows are accepted.
        cost: time of a token beside others, where one alone takes 1.
        most: the longest draft.
    """
    tokens, seconds, count = 1.0, 1.0, 0
    while count < most:
        kept = rate ** (count + 1)
        saved = (1 - cost) * every ** (count + 1) + cost * kept
        if saved * seconds < cost * tokens:
            break
        tokens, seconds, count = tokens + kept, seconds + cost, count + 1
    return count


def make_speculative(
    loaded: LoadedModel, flag: str, drafter: Drafter, most: int | None, counts: DraftCounts
) -> LoadedModel:
    """Make a model read the tokens of a drafter with its own.

    Args:
        loaded: the model.
        flag: what asks for it, for messages.
        drafter: drafts tokens.
        most: the longest draft; None for `MOST_DRAFTED`.
        counts: of draft tokens.

    Raises:
        UsageError: reading several tokens would give other bits than one after the other.
    """
    model = reader = loaded.model
    if hasattr(model, "over_arrays"):
        reader = model.over_arrays() if model.suits_arrays() else None
    exact = isinstance(reader, TransformerArrays) and reader.is_row_by_row
    if not exact or loaded.conditioning.is_source:
        raise UsageError(
            f"{flag} is for transformers of text in float32, int8 or int4, on a CPU with the "
            f"compiled kernels: they read several tokens exactly as one by one. {loaded.name} is "
            "no such model here"
        )
    speculative = SpeculativeModel(model, reader, drafter, most or MOST_DRAFTED, counts)
    return replace(loaded, model=speculative)
