"""Language model over bytes that sums over the token sequences of another model."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seqgen.models.arrays import ArrayModel
from seqgen.models.distributions import normalise, require_numbers
from seqgen.models.inference import InferenceModel
from seqgen.models.state import Rows, State
from seqgen.plugins.bytes.covers import (
    BYTE_VALUES,
    NEGLIGIBLE,
    SMALL,
    Cover,
    Covers,
    Segmentation,
    TokenPrefix,
    Unread,
    extend,
    read_tail,
    trim,
)
from seqgen.settings import ModelConfig, require
from seqgen.text.tokenizers.byte import OFFSET, ByteTokenizer

if TYPE_CHECKING:
    from seqgen.text.framing import Framing

# The number of the state before the start token, which is no row yet.
NEW = -1
BEFORE_START = TokenPrefix(NEW, 1.0, np.zeros(0), 0.0, 0.0, ())


@dataclass
class CoverState(State):
    """State of texts of bytes: the covers of each, and the model's states after their tokens.

    Attributes:
        inner: states of the model, each with the rows that were read in one step.
        rows: the numbers of the rows of each.
        texts: the covers of each of B texts, which name the rows that they need.
    """

    inner: tuple[State, ...]
    rows: tuple[tuple[int, ...], ...]
    texts: tuple[Covers, ...]

    def select(self, rows: Rows) -> CoverState:
        return replace(self, texts=tuple(self.texts[row] for row in rows))

    @classmethod
    def cat(cls, states: Sequence[CoverState]) -> CoverState:
        """Concatenate the texts, and list the inner states of all."""
        names = [field.name for field in fields(cls)]
        return cls(*(sum((getattr(state, name) for state in states), ()) for name in names))


def _most_probable(covers: Covers) -> TokenPrefix | None:
    """Return the tokens of the most probable cover that were read; None before the start."""
    every = covers.read or covers.unread
    return max(every, key=lambda each: each.mass).prefix if every else None


class ByBytes(InferenceModel):
    """A language model over tokens, seen one byte at a time.

    It reads and predicts the tokens of the byte tokenizer. The first token that a text's state
    reads stands for the start token of the inner model. With each further byte, the inner model
    reads the last tokens of those covers that became probable enough, mostly in one batched step.

    Attributes:
        inner: the model over tokens.
        segmentation: which tokens may follow one another.
        bytes_read: how many bytes have been read, start tokens not counted.
        left_out: sum, over all bytes read, of the share of the covers' mass that was dropped.
    """

    normalised = True
    inner: InferenceModel

    def wrap(
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
        self.inner = inner
        self.segmentation, self._start = segmentation, framing.start
        self._most, self._least = most, least
        self._ends = [token for token in framing.stops if not segmentation.texts[token]]
        self._numbers = itertools.count()
        # Covers that were forgotten could have taken any byte.
        self._floor = NEGLIGIBLE / BYTE_VALUES * segmentation.possible_bytes
        self.bytes_read, self.left_out = 0, 0.0

    @property
    def notes(self) -> Iterable[tuple[str, Any]]:
        """Note the mean share of the mass that was dropped, if every cover counts."""
        if not self.segmentation.every:
            return ()
        return [("left_out_mass", self.left_out / max(1, self.bytes_read))]

    @property
    def precision(self) -> str:
        return self.inner.precision

    def parameter_count(self) -> int:
        """Count the parameters of the inner model."""
        return self.inner.parameter_count()

    def start(self, batch: int, stride: int | None = None) -> CoverState:
        said = "--stride is for models over tokens; byte by byte, a window moves on by half of it"
        require(stride is None or self.inner.window is None, said)
        return CoverState((), (), (Covers(),) * batch)

    def step(self, tokens: Sequence[int], state: CoverState) -> tuple[np.ndarray, CoverState]:
        extended = tuple(map(self._extend, tokens, state.texts))
        spare = [_most_probable(covers) for covers in state.texts]
        state = CoverState(state.inner, state.rows, extended)
        while (after := self._read(state, spare)) is not state:
            state = after
        texts = []
        for covers, other in zip(state.texts, spare, strict=True):
            kept, dropped = trim(covers if covers.mass else self._restart(other), self._most)
            texts.append(kept)
            self.left_out += dropped
        trie = self.segmentation.trie
        probs = np.maximum([covers.next_bytes(trie) for covers in texts], self._floor)
        with np.errstate(divide="ignore"):
            return np.log(probs), CoverState(state.inner, state.rows, tuple(texts))

    def _extend(self, token: int, covers: Covers) -> Covers:
        if not covers.read and not covers.unread:
            return Covers(unread=[Unread(BEFORE_START, self._start, b"", 1.0)])
        if token < OFFSET:
            return covers  # no byte: padding after the end of a text
        self.bytes_read += 1
        return extend(covers, token - OFFSET, self.segmentation)

    def _restart(self, prefix: TokenPrefix) -> Covers:
        """Drop the bytes after some tokens, where no sequence of tokens has them."""
        prefix = replace(prefix, weight=1.0, path=(), own=True)
        return Covers([Cover(prefix, self.segmentation.trie.root, 1.0)])

    def _read(self, state: CoverState, spare: Sequence[TokenPrefix | None]) -> CoverState:
        """Let the inner model read the last tokens of covers that are probable enough.

        Args:
            state: with covers that are not read; returned as it is if none is probable enough.
            spare: other tokens whose rows are kept as well.
        """
        split = [self._separate_probable(covers) for covers in state.texts]
        chosen = [each for probable, _ in split for each in probable]
        if not chosen:
            return state
        needed = {prefix.row for prefix in spare if prefix is not None}
        for _, rest in split:
            needed.update(each.row for each in (*rest.read, *rest.unread))
        kept, branch, order = self._branch(state, [each.row for each in chosen], needed)
        logits, after = self.inner.step([chosen[at].token for at in order], branch)
        rows = dict(zip(order, self._numbers, strict=False))
        probs = dict(zip(order, self._probabilities(logits), strict=True))
        places = range(len(chosen))
        prefixes = (self._prefix(rows[at], chosen[at], probs[at]) for at in places)
        texts = []
        for probable, covers in split:
            for each in probable:
                found = read_tail(next(prefixes), each.tail, self.segmentation)
                read, unread = [*covers.read, *found.read], [*covers.unread, *found.unread]
                covers = Covers(read, unread, covers.impossible)
            texts.append(covers)
        return CoverState((*kept.inner, after), (*kept.rows, tuple(rows.values())), tuple(texts))

    def _separate_probable(self, covers: Covers) -> tuple[list[Unread], Covers]:
        """Separate the covers whose last token is to be read from the others."""
        least = self._least * covers.mass if covers.unread else 0.0
        probable, rest = [], []
        for each in covers.unread:
            # The probability of a long tail would vanish while the weight grows.
            late = each.mass < least and each.tail_prob > SMALL
            (rest if each.growing or late else probable).append(each)
        return probable, replace(covers, unread=rest)

    def _branch(
        self, state: CoverState, rows: Sequence[int], needed: Container[int]
    ) -> tuple[CoverState, State, Sequence[int]]:
        """Copy rows of the inner states, some more than once.

        Args:
            state: with these states, which are used up.
            rows: the numbers of the rows.
            needed: those that stay.

        Returns:
            The states of the rows that stay; one state with the copied rows, and the place of each
            of these among `rows`.
        """
        inner, numbers, branches, order, known = [], [], [], [], set()
        for one, own in zip(state.inner, state.rows, strict=True):
            # Copies of a row have its number: the first counts.
            places = [at for at, row in enumerate(own) if row in needed and row not in known]
            copied = [at for at, row in enumerate(rows) if row in own and row not in known]
            known.update(own)
            if copied:
                branch = one.copy() if places else one
                branches.append(branch.select([own.index(rows[at]) for at in copied]))
                order += copied
            if places:
                few = 2 * len(places) <= len(own)
                inner.append(one.select(places) if few else one)
                numbers.append(tuple(own[at] for at in places) if few else own)
        if new := [at for at, row in enumerate(rows) if row == NEW]:
            branches.append(self.inner.start(len(new)))
            order += new
        branch = branches[0] if len(branches) == 1 else type(branches[0]).cat(branches)
        return replace(state, inner=tuple(inner), rows=tuple(numbers)), branch, order

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
            path=(unread.prefix.path, unread.token, unread.text) if unread.text else (),
            own=unread.own,
        )

    def _read_all(self, tokens: np.ndarray, state: CoverState) -> tuple[np.ndarray, CoverState]:
        """Read tokens (B, T) one by one; return the log-probabilities (B, T, 260) after each."""
        each = []
        for column in tokens.T.tolist():
            log_probs, state = self.step(column, state)
            each.append(log_probs)
        return np.stack(each, 1), state


class ByteArrays(ByBytes, ArrayModel):
    """An array model, seen one byte at a time; see `ByBytes.wrap` for its arguments."""

    def __init__(
        self,
        inner: ArrayModel,
        segmentation: Segmentation,
        framing: Framing,
        most: int,
        least: float,
    ) -> None:
        self.dtype = np.dtype(np.float64)
        self.wrap(inner, segmentation, framing, most, least)

    step = ByBytes.step

    def __call__(
        self, tokens: np.ndarray, state: CoverState | None = None, last: int | None = None
    ) -> tuple[np.ndarray, CoverState]:
        log_probs, state = self._read_all(tokens, state or self.start(len(tokens)))
        return (log_probs if last is None else log_probs[:, -last:]), state
