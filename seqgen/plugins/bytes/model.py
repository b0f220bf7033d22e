"""Language model over bytes that sums over the token sequences of another model."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from seqgen.models.arrays import ArrayModel
from seqgen.models.distributions import normalise, require_numbers
from seqgen.models.inference import InferenceModel
from seqgen.models.state import Rows, State
from seqgen.plugins.bytes.covers import (
    Cover,
    Covers,
    Segmentation,
    TokenPrefix,
    Unread,
    extend,
    read_tail,
    trim,
)
from seqgen.settings import ModelConfig
from seqgen.text.tokenizers.byte import OFFSET, ByteTokenizer

if TYPE_CHECKING:
    from seqgen.text.framing import Framing

# The number of the state before the start token, which is no row yet.
NEW = -1


@dataclass
class CoverState(State):
    """State of texts of bytes: the covers of each, and the model's state after their tokens.

    Attributes:
        inner: rows of the model's state; None before the first token.
        rows: the number of each of these rows.
        texts: the covers of each of B texts, which name the rows that they need.
    """

    inner: State | None
    rows: tuple[int, ...]
    texts: tuple[Covers, ...]

    def select(self, rows: Rows) -> CoverState:
        return replace(self, texts=tuple(self.texts[row] for row in rows))

    @classmethod
    def cat(cls, states: Sequence[CoverState]) -> CoverState:
        """Concatenate the texts, and the rows of all states."""
        rows, texts = (
            tuple(each for state in states for each in getattr(state, name))
            for name in ("rows", "texts")
        )
        return cls(_joined([state.inner for state in states]), rows, texts)


def _mass(cover: Cover) -> float:
    return cover.mass


def _joined(states: Iterable[State | None]) -> State | None:
    """Concatenate the states that are not None; None without any."""
    known = [state for state in states if state is not None]
    return type(known[0]).cat(known) if len(known) > 1 else next(iter(known), None)


class ByBytes(InferenceModel):
    """A language model over tokens, seen one byte at a time.

    It reads and predicts the tokens of the byte tokenizer. The first token that a text's state
    reads stands for the start token of the inner model. With each further byte, the inner model
    reads the last tokens of those covers that became probable enough, mostly in one batched step.

    Attributes:
        inner: the model over tokens.
        segmentation: which tokens may follow one another.
        rows_read: how many tokens the inner model has read in all rows.
        bytes_read: how many bytes have been read.
        left_out: sum, over all bytes read, of the share of the covers that was dropped.
    """

    normalised = True
    inner: InferenceModel

    def see(
        self,
        inner: InferenceModel,
        segmentation: Segmentation,
        framing: Framing,
        most: int,
        least: float,
    ) -> None:
        """Set the inner model and what is kept of its covers.

        Args:
            inner: the model over tokens.
            segmentation: of its tokenizer.
            framing: its start token, and those that end texts.
            most: how many covers of a text are kept at most.
            least: the share of all covers that one needs for its last token to be read.
        """
        self.config = ModelConfig(vocab_size=ByteTokenizer.vocab_size)
        self.segmentation, self._start = segmentation, framing.start
        self._most, self._least = most, least
        self._ends = [token for token in framing.stops if not segmentation.texts[token]]
        self._numbers = itertools.count()
        self.rows_read, self.bytes_read, self.left_out = 0, 0, 0.0

    @property
    def precision(self) -> str:
        return self.inner.precision

    def parameter_count(self) -> int:
        """Count the parameters of the inner model."""
        return self.inner.parameter_count()

    def start(self, batch: int, stride: int | None = None) -> CoverState:
        return CoverState(None, (), (Covers(),) * batch)

    def step(self, tokens: Sequence[int], state: CoverState) -> tuple[np.ndarray, CoverState]:
        extended = tuple(map(self._extended, tokens, state.texts))
        spare = [max(covers.read, key=_mass, default=None) for covers in state.texts]
        state = CoverState(state.inner, state.rows, extended)
        while (after := self._read(state, spare)) is not state:
            state = after
        texts = []
        for covers, other in zip(state.texts, spare, strict=True):
            kept, dropped = trim(covers if covers.mass else self._restarted(other), self._most)
            texts.append(kept)
            self.left_out += dropped
        self.bytes_read += len(tokens)
        probs = np.stack([covers.next_bytes() for covers in texts])
        with np.errstate(divide="ignore"):
            return np.log(probs), CoverState(state.inner, state.rows, tuple(texts))

    def _extended(self, token: int, covers: Covers) -> Covers:
        if not covers.read and not covers.unread:
            return Covers(unread=[Unread(NEW, self._start, b"", 1.0, ())])
        if token < OFFSET:
            return covers  # no byte: padding after the end of a text
        return extend(covers, token - OFFSET, self.segmentation)

    def _restarted(self, cover: Cover) -> Covers:
        """Drop the bytes after the tokens of a cover, where no sequence of tokens has them."""
        prefix = replace(cover.prefix, weight=1.0, path=())
        return Covers([Cover(prefix, self.segmentation.trie.root, 1.0)])

    def _read(self, state: CoverState, spare: Sequence[Cover | None]) -> CoverState:
        """Let the inner model read the last tokens of covers that are probable enough.

        Args:
            state: with covers that are not read; returned as it is if none is probable enough.
            spare: other covers whose rows are kept as well.
        """
        split = [self._split(covers) for covers in state.texts]
        chosen = [each for probable, _ in split for each in probable]
        if not chosen:
            return state
        self.rows_read += len(chosen)
        needed = {cover.row for cover in spare if cover is not None}
        for _, rest in split:
            needed.update(each.row for each in (*rest.read, *rest.unread))
        place_of = {row: place for place, row in enumerate(state.rows)}
        kept = [row for row in place_of if row in needed]
        branch = self._branch(state, [place_of.get(each.row) for each in chosen], bool(kept))
        logits, after = self.inner.step([each.token for each in chosen], branch)
        rows = list(itertools.islice(self._numbers, len(chosen)))
        inner = state.inner.select([place_of[row] for row in kept]) if kept else None
        prefixes = map(self._prefix, rows, chosen, self._probabilities(logits))
        texts = []
        for probable, covers in split:
            for each in probable:
                found = read_tail(next(prefixes), each.tail, self.segmentation)
                covers = Covers([*covers.read, *found.read], [*covers.unread, *found.unread])
            texts.append(covers)
        return CoverState(_joined([inner, after]), (*kept, *rows), tuple(texts))

    def _split(self, covers: Covers) -> tuple[list[Unread], Covers]:
        """Separate the covers whose last token is to be read from the others."""
        least = self._least * covers.mass if covers.unread else 0.0
        probable = [each for each in covers.unread if not each.growing and each.mass >= least]
        rest = [each for each in covers.unread if each.growing or each.mass < least]
        return probable, Covers(covers.read, rest)

    def _branch(self, state: CoverState, places: Sequence[int | None], keeps: bool) -> State:
        """Copy rows of the inner state, in order; None stands for a new one.

        Args:
            state: its inner state is used up unless `keeps`.
            places: of the rows.
            keeps: the inner state is still needed.
        """
        old = [place for place in places if place is not None]
        new = self.inner.start(len(places) - len(old)) if len(old) < len(places) else None
        if not old:
            return new
        copied = (state.inner.copy() if keeps else state.inner).select(old)
        if new is None:
            return copied
        numbers = [itertools.count(), itertools.count(len(old))]
        return _joined([copied, new]).select([next(numbers[each is None]) for each in places])

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Compute the probabilities (B, V) of the inner model in float64."""
        log_probs = logits if self.inner.normalised else normalise(logits)
        return np.exp(require_numbers(log_probs).astype(np.float64))

    def _prefix(self, row: int, unread: Unread, probs: np.ndarray) -> TokenPrefix:
        """Describe the tokens of a cover whose last one was just read.

        Args:
            row: the number of the state after it.
            unread: the cover before.
            probs: (V,), of the next token.
        """
        probs, segmentation = probs / probs.sum(), self.segmentation
        unknown = segmentation.unknown
        return TokenPrefix(
            row=row,
            weight=unread.weight,
            probs=probs[segmentation.trie.ids],
            ends=float(probs[self._ends].sum()),
            unknown=0.0 if unknown is None else float(probs[unknown]),
            path=(unread.before, unread.token, unread.text) if unread.text else (),
        )

    def _stepped(self, tokens: np.ndarray, state: CoverState) -> tuple[np.ndarray, CoverState]:
        """Read tokens (B, T) one by one; return the log-probabilities (B, T, 260) after each."""
        each = []
        for column in tokens.T.tolist():
            log_probs, state = self.step(column, state)
            each.append(log_probs)
        return np.stack(each, 1), state


class ByteArrays(ByBytes, ArrayModel):
    """An array model, seen one byte at a time; see `ByBytes.see` for its arguments."""

    def __init__(
        self,
        inner: ArrayModel,
        segmentation: Segmentation,
        framing: Framing,
        most: int,
        least: float,
    ) -> None:
        self.inner, self.dtype = inner, np.dtype(np.float64)
        self.see(inner, segmentation, framing, most, least)

    step = ByBytes.step

    def __call__(
        self, tokens: np.ndarray, state: CoverState | None = None, last: int | None = None
    ) -> tuple[np.ndarray, CoverState]:
        log_probs, state = self._stepped(tokens, state or self.start(len(tokens)))
        return (log_probs if last is None else log_probs[:, -last:]), state
