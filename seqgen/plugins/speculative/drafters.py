"""Draft tokens: by lookup of the last n-gram, or by a smaller model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from seqgen.engines.ops import ops_of
from seqgen.errors import UsageError
from seqgen.generation.text_batch import PIECE
from seqgen.models.state import Rows, State
from seqgen.settings import require

if TYPE_CHECKING:
    from seqgen.models.inference import InferenceModel
    from seqgen.store.loaded import LoadedModel

# Lengths of n-grams that are looked up, the longest first.
LENGTHS = 12, 6, 4, 3, 2, 1


class Drafter(ABC):
    """Drafts of the tokens that follow, for each text of a batch."""

    @abstractmethod
    def start(self, batch: int) -> State:
        """Create the state of `batch` empty texts."""

    @abstractmethod
    def read(self, tokens: np.ndarray, state: State) -> State:
        """Read tokens (B, T); return the state after them. The one given is used up."""

    @abstractmethod
    def draft_kinds(self, state: State) -> Sequence[Hashable | None]:
        """Return the kind of each text's draft, such as the length of an n-gram; None for no draft.

        Drafts of one kind share an acceptance rate.
        """

    @abstractmethod
    def draft(self, counts: Sequence[int], state: State) -> list[list[int]]:
        """Draft the next tokens of each text, as many as `counts` says; the state is not used up.

        The draft is empty where its kind is None.
        """


class TextLookup:
    """Tokens of one text, with the last occurrence of each n-gram.

    Attributes:
        ids: the tokens.
        length: of the longest n-gram at the end that occurred before; 0 for none.
        follows: the place after that occurrence.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.length = self.follows = 0
        self._ends: dict[tuple[int, ...], int] = {}

    def push(self, tokens: Sequence[int]) -> None:
        """Append tokens."""
        for token in tokens:
            self.ids.append(token)
            self.length, end = 0, len(self.ids)
            for n in LENGTHS:
                if n <= end:
                    ngram = tuple(self.ids[end - n :])
                    before = self._ends.get(ngram)
                    if before is not None and not self.length:
                        self.length, self.follows = n, before
                    self._ends[ngram] = end

    def draft(self, count: int) -> list[int]:
        """Copy `count` tokens from `follows` on, the copied ones too."""
        ids = self.ids[self.follows : self.follows + count]
        period = len(self.ids) - self.follows
        while len(ids) < count:
            ids.append(ids[-period])
        return ids

    def copy(self) -> TextLookup:
        """Copy it."""
        copied = TextLookup()
        copied.ids, copied._ends = list(self.ids), dict(self._ends)
        copied.length, copied.follows = self.length, self.follows
        return copied


@dataclass
class LookupState(State):
    """Texts that are looked up, one for each row."""

    texts: list[TextLookup] = field(default_factory=list)

    def select(self, rows: Rows) -> LookupState:
        rows = list(rows)
        first = [row not in rows[:place] for place, row in enumerate(rows)]
        texts = [self.texts[row] for row in rows]
        pairs = zip(texts, first, strict=True)
        return LookupState([text if is_first else text.copy() for text, is_first in pairs])

    def copy(self) -> LookupState:
        return LookupState([text.copy() for text in self.texts])

    @classmethod
    def cat(cls, states: Sequence[LookupState]) -> LookupState:
        return cls([text for state in states for text in state.texts])


class LookupDrafter(Drafter):
    """Draft what followed the last tokens before (Saxena 2023, "Prompt Lookup Decoding").

    The longest of the n-grams at the end that occurred before counts, at its last occurrence.
    """

    def start(self, batch: int) -> LookupState:
        return LookupState([TextLookup() for _ in range(batch)])

    def read(self, tokens: np.ndarray, state: LookupState) -> LookupState:
        for text, ids in zip(state.texts, tokens.tolist(), strict=True):
            text.push(ids)
        return state

    def draft_kinds(self, state: LookupState) -> Sequence[int | None]:
        return [text.length or None for text in state.texts]

    def draft(self, counts: Sequence[int], state: LookupState) -> list[list[int]]:
        pairs = zip(state.texts, counts, strict=True)
        return [text.draft(count) if text.length else [] for text, count in pairs]


@dataclass
class DraftState(State):
    """State of a smaller model.

    Attributes:
        state: after the tokens that were read.
        logits: (B, V), of the next token.
    """

    state: State
    logits: np.ndarray


class ModelDrafter(Drafter):
    """Draft the most probable tokens under a smaller model.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: InferenceModel) -> None:
        self.model = model

    def start(self, batch: int) -> DraftState:
        return DraftState(self.model.start(batch), np.zeros((batch, self.model.vocab_size)))

    def read(self, tokens: np.ndarray, state: DraftState) -> DraftState:
        after, logits = state.state, state.logits
        if tokens.shape[1] == 1:
            logits, after = self.model.step(tokens[:, 0].tolist(), after)
            return DraftState(after, logits)
        for begin in range(0, tokens.shape[1], PIECE):
            ids = self.model.ids(tokens[:, begin : begin + PIECE])
            called, after = self.model(ids, after, last=1)
            logits = ops_of(called).array(called)[:, 0]
        return DraftState(after, logits)

    def draft_kinds(self, state: DraftState) -> Sequence[bool]:
        return [True] * len(state.logits)

    def draft(self, counts: Sequence[int], state: DraftState) -> list[list[int]]:
        rows = [row for row, count in enumerate(counts) if count]
        drafts: list[list[int]] = [[] for _ in counts]
        logits, branch = state.logits[rows], None
        while rows:
            ids = logits.argmax(-1).tolist()
            for row, token in zip(rows, ids, strict=True):
                drafts[row].append(token)
            stay = [place for place, row in enumerate(rows) if len(drafts[row]) < counts[row]]
            if stay:
                branch = state.state.copy().select(rows) if branch is None else branch
                logits, branch = self.model.step(
                    [ids[place] for place in stay], branch.select(stay)
                )
            rows = [rows[place] for place in stay]
        return drafts


def model_drafter(loaded: LoadedModel, name: str) -> ModelDrafter:
    """Load a smaller model that drafts tokens for another.

    Raises:
        UsageError: it has other tokens, or reads in the other direction.
        SeqgenError: there is no such model.
    """
    from seqgen.store.loading import Work, load

    draft = load(name, work=Work())
    draft.conditioning.require_nothing("--draft")
    names = f"{loaded.stored.name} and {draft.stored.name}"
    if draft.tokenizer.fingerprint != loaded.tokenizer.fingerprint:
        raise UsageError(
            f"--draft: {names} use different tokenizers; train one with --tokenizer pointing at "
            "the other"
        )
    require(draft.backward == loaded.backward, f"--draft: {names} read in different directions")
    return ModelDrafter(draft.model)
