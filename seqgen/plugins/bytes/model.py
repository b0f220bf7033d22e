"""Language model over bytes that sums over the token sequences of another model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    Unread,
    extend,
    read_tail,
    trim,
)
from seqgen.settings import ModelConfig
from seqgen.text.tokenizers.byte import OFFSET, ByteTokenizer

if TYPE_CHECKING:
    from seqgen.text.framing import Framing

# The row of a cover before the start token: a new one.
NEW = -1


@dataclass
class CoverState(State):
    """State of texts of bytes: the covers of each, and the model's state after their tokens.

    Attributes:
        inner: a row for each cover whose tokens were read; None before the first.
        size: how many rows it has.
        texts: the covers of each of B texts.
    """

    inner: State | None
    size: int
    texts: tuple[Covers, ...]

    def select(self, rows: Rows) -> CoverState:
        return replace(self, texts=tuple(self.texts[row] for row in rows))

    @classmethod
    def cat(cls, states: Sequence[CoverState]) -> CoverState:
        """Concatenate the texts, and the rows of all states."""
        texts: list[Covers] = []
        size = 0
        for state in states:
            texts += [_shifted(covers, size) for covers in state.texts]
            size += state.size
        return cls(_joined([state.inner for state in states]), size, tuple(texts))


def _shifted(covers: Covers, by: int) -> Covers:
    return covers.moved(lambda row: row + by)


def _joined(states: Iterable[State | None]) -> State | None:
    """Concatenate the states that are not None; None without any."""
    known = [state for state in states if state is not None]
    return type(known[0]).cat(known) if len(known) > 1 else next(iter(known), None)


class ByBytes(InferenceModel):
    """A language model over tokens, seen one byte at a time.

    It reads and predicts the tokens of the byte tokenizer. The first token that a text's state
    reads stands for the start token of the inner model. Each further byte costs at most one
    batched step of the inner model, for those covers that became probable enough with it.

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
        self.rows_read, self.bytes_read, self.left_out = 0, 0, 0.0

    @property
    def precision(self) -> str:
        return self.inner.precision

    def parameter_count(self) -> int:
        """Count the parameters of the inner model."""
        return self.inner.parameter_count()

    def start(self, batch: int, stride: int | None = None) -> CoverState:
        return CoverState(None, 0, (Covers(),) * batch)

    def step(self, tokens: Sequence[int], state: CoverState) -> tuple[np.ndarray, CoverState]:
        extended = [self._extended(*each) for each in zip(tokens, state.texts, strict=True)]
        spare = [_best(covers, self.segmentation) for covers in state.texts]
        state = self._read(replace(state, texts=tuple(extended)), spare)
        while any(self._is_stuck(covers) for covers in state.texts):
            state = self._read(state, spare)
        texts = []
        for covers, other in zip(state.texts, spare, strict=True):
            # No token sequence has these bytes: the text goes on as if the last were not there.
            kept, dropped = trim(covers if covers.mass else Covers((other,)), self._most)
            texts.append(kept)
            self.left_out += dropped
        self.bytes_read += len(tokens)
        probs = np.stack([covers.next_bytes() for covers in texts])
        with np.errstate(divide="ignore"):
            return np.log(probs), replace(state, texts=tuple(texts))

    def _extended(self, token: int, covers: Covers) -> Covers:
        if not covers.read and not covers.unread:
            return Covers(unread=(Unread(NEW, self._start, b"", 1.0),))
        if token < OFFSET:
            return covers  # no byte: padding after the end of a text
        return extend(covers, token - OFFSET, self.segmentation)

    def _is_stuck(self, covers: Covers) -> bool:
        """Check whether nothing is known to have the bytes, and something is left to be read."""
        return not covers.mass and any(not each.growing for each in covers.unread)

    def _read(self, state: CoverState, spare: Sequence[Cover | None]) -> CoverState:
        """Let the inner model read the last tokens of covers that are probable enough.

        Args:
            state: with covers that are not read.
            spare: a cover of each text whose row is kept.
        """
        chosen = [
            (place, each)
            for place, covers in enumerate(state.texts)
            for each in self._probable(covers)
        ]
        if not chosen:
            return state
        self.rows_read += len(chosen)
        for place, each in chosen:
            covers = state.texts[place]
            rest = tuple(other for other in covers.unread if other is not each)
            texts = list(state.texts)
            texts[place] = replace(covers, unread=rest)
            state = replace(state, texts=tuple(texts))
        parents = [each.row for _, each in chosen]
        needed = {row for covers in state.texts for row in covers.rows}
        needed |= {cover.row for cover in spare if cover is not None}
        kept = sorted(needed - {NEW})
        logits, after = self.inner.step(
            [each.token for _, each in chosen], self._branch(state.inner, parents, bool(kept))
        )
        inner = state.inner.select(kept) if kept else None
        moved = {row: place for place, row in enumerate(kept)}
        texts = [covers.moved(moved.__getitem__) for covers in state.texts]
        for row, ((place, each), probs) in enumerate(
            zip(chosen, self._probabilities(logits), strict=True), len(kept)
        ):
            first = self._cover(row, each, probs)
            read, unread = read_tail(each, first, self.segmentation)
            covers = texts[place]
            texts[place] = Covers((*covers.read, *read), (*covers.unread, *unread))
        for cover, place in zip(spare, range(len(texts)), strict=True):
            if cover is not None:
                spare[place] = replace(cover, row=moved[cover.row])
        size = len(kept) + len(chosen)
        return CoverState(_joined([inner, after]), size, tuple(texts))

    def _probable(self, covers: Covers) -> list[Unread]:
        """List the covers whose last token is to be read."""
        least = self._least * covers.mass
        return [each for each in covers.unread if not each.growing and each.mass >= least]

    def _branch(self, inner: State | None, parents: Sequence[int], keeps: bool) -> State:
        """Copy the states of some rows, in order; `NEW` stands for a new one."""
        old = [row for row in parents if row != NEW]
        if not old:
            return self.inner.start(len(parents))
        branch = (inner.copy() if keeps else inner).select(old)
        if len(old) == len(parents):
            return branch
        joined = _joined([branch, self.inner.start(len(parents) - len(old))])
        old, new = iter(range(len(old))), iter(range(len(old), len(parents)))
        return joined.select([next(new if row == NEW else old) for row in parents])

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Compute the probabilities (B, V) of the inner model in float64."""
        log_probs = logits if self.inner.normalised else normalise(logits)
        return np.exp(require_numbers(log_probs).astype(np.float64))

    def _cover(self, row: int, unread: Unread, probs: np.ndarray) -> Cover:
        """Make the cover of a token that was just read.

        Args:
            row: of the state after it.
            unread: the cover before.
            probs: (V,), of the next token.
        """
        probs = probs / probs.sum()
        segmentation = self.segmentation
        unknown = segmentation.unknown
        return Cover(
            row=row,
            token=unread.token,
            text=unread.text,
            weight=unread.weight,
            probs=probs[segmentation.trie.ids],
            ends=float(probs[self._ends].sum()),
            unknown=0.0 if unknown is None else float(probs[unknown]),
            node=segmentation.trie.root,
        )

    def _stepped(self, tokens: np.ndarray, state: CoverState) -> tuple[np.ndarray, CoverState]:
        """Read tokens (B, T) one by one; return the log-probabilities (B, T, 260) after each."""
        each = []
        for column in tokens.T.tolist():
            log_probs, state = self.step(column, state)
            each.append(log_probs)
        return np.stack(each, 1), state


def _best(covers: Covers, segmentation: Segmentation) -> Cover | None:
    """Return the most probable cover, without the bytes that no token has; None if none is read."""
    if not covers.read:
        return None
    best = max(covers.read, key=lambda cover: cover.mass)
    return replace(best, weight=1.0, text=b"", node=segmentation.trie.root)


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
