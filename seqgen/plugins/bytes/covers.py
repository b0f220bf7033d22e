"""The tokens that can stand behind a byte prefix: covers, their weights, and what comes next.

A cover of the bytes x is a sequence of tokens whose text begins with x and whose last token is
needed for that: it reaches the end of x or passes it. Covers that agree but for their last token
are kept as one: the tokens before, which the model has read, and the rest of x, with which the last
one begins. So

    p(x) = sum over covers of p(tokens read) * p(next token begins with the rest),

and p(next byte | x) is a quotient of two such sums (Phan et al. 2024; Hayase et al. 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from seqgen.plugins.bytes.trie import Trie, TrieNode
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.byte import OFFSET, ByteTokenizer

BYTE_VALUES = 256
END, UNKNOWN = ByteTokenizer.eos_id, ByteTokenizer.unk_id
# Covers that are less probable than this share of all are forgotten.
NEGLIGIBLE = 1e-15


@dataclass(frozen=True, slots=True)
class Cover:
    """Tokens that the model has read, and the rest of the bytes, which the next token begins with.

    Attributes:
        row: of the model's state after the tokens.
        token: the last of them.
        text: its bytes; empty for the start token.
        weight: the probability of the tokens, divided by that of all bytes so far.
        probs: (N,), of the next token, by its place in the trie.
        ends: the probability that no more tokens follow.
        unknown: the probability that an unknown piece follows.
        node: the rest of the bytes.
    """

    row: int
    token: int
    text: bytes
    weight: float
    probs: np.ndarray
    ends: float
    unknown: float
    node: TrieNode

    @property
    def mass(self) -> float:
        """Probability of the tokens and of the rest of the bytes, over that of all bytes so far.

        Tokens that end with the last byte are left out, except at the root: those have become
        covers of their own.
        """
        if not self.node.depth:
            return self.weight
        longer = self.probs[self.node.longer : self.node.end]
        return self.weight * float(longer.sum())


@dataclass(frozen=True, slots=True)
class Unread:
    """Cover whose last token the model has not read yet, since it is improbable.

    Until it is read, its bytes count as uniformly distributed.

    Attributes:
        row: of the model's state before the token.
        token: the last one.
        text: its bytes.
        weight: the probability of the tokens, divided by that of all bytes so far.
        tail: the bytes after it.
        growing: the token stands for an unknown piece that has not ended, with `text` so far.
    """

    row: int
    token: int
    text: bytes
    weight: float
    tail: bytes = b""
    growing: bool = False

    @property
    def mass(self) -> float:
        """See `Cover.mass`."""
        return self.weight * BYTE_VALUES ** -float(len(self.tail))


@dataclass(frozen=True, slots=True)
class Covers:
    """All covers of the bytes of one text that are kept; none before the start token.

    Attributes:
        read: those whose tokens the model has read.
        unread: those whose last token it has not.
    """

    read: tuple[Cover, ...] = ()
    unread: tuple[Unread, ...] = ()

    @property
    def mass(self) -> float:
        """Sum of the masses."""
        return sum(cover.mass for cover in (*self.read, *self.unread))

    @property
    def rows(self) -> set[int]:
        """Rows of the model's state that these covers need."""
        return {cover.row for cover in (*self.read, *self.unread)}

    def moved(self, rows: Callable[[int], int]) -> Covers:
        """Renumber the rows."""
        return Covers(
            tuple(replace(cover, row=rows(cover.row)) for cover in self.read),
            tuple(replace(cover, row=rows(cover.row)) for cover in self.unread),
        )

    def next_bytes(self) -> np.ndarray:
        """Compute the probabilities of the next byte token, (260,); they sum to 1.

        Raises:
            ZeroDivisionError: there are no covers.
        """
        probs = np.zeros(ByteTokenizer.vocab_size)
        for cover in self.read:
            node, weight = cover.node, cover.weight
            if len(node.starts):
                longer = cover.probs[node.longer : node.end]
                masses = np.add.reduceat(longer, node.starts)
                probs[OFFSET + node.next_bytes] += weight * masses
            if not node.depth:
                probs[END] += weight * cover.ends
                probs[OFFSET:] += weight * cover.unknown / BYTE_VALUES
                # What is left belongs to tokens without text, such as padding.
                rest = 1 - float(cover.probs.sum()) - cover.ends - cover.unknown
                probs[UNKNOWN] += weight * max(0.0, rest)
        probs[OFFSET:] += sum(cover.mass for cover in self.unread) / BYTE_VALUES
        return probs / probs.sum()


class Segmentation:
    """Which tokens a tokenizer may write after one another.

    Args:
        tokenizer: its tokens.
        every: allow all sequences of tokens. Otherwise two neighbours are allowed only if the
            tokenizer splits their joined text into these two.

    Attributes:
        trie: of the tokens' bytes.
        texts: the bytes of each token; empty for those that are no text.
        unknown: the token that stands for unknown pieces; None where nothing is unknown.
    """

    def __init__(self, tokenizer: Tokenizer, every: bool) -> None:
        self.every, self._tokenizer = every, tokenizer
        special = set(tokenizer.special_ids)
        self.texts = [
            b"" if token in special else tokenizer.text_bytes(np.array([token]))
            for token in range(tokenizer.vocab_size)
        ]
        self.trie = Trie(self.texts)
        self.unknown = None if tokenizer.complete else tokenizer.unk_id
        self._allowed: dict[tuple[int, bytes, int], bool] = {}
        self._pieces: dict[bytes, bool] = {}

    def allows(self, token: int, text: bytes, following: int) -> bool:
        """Check whether one token may follow another.

        Args:
            token: the one before.
            text: its bytes; empty at the start of a text.
            following: the other.
        """
        if self.every:
            return True
        key = token, text, following
        if key not in self._allowed:
            before = [token] if text else []
            self._allowed[key] = self._splits(text + self.texts[following], [*before, following])
        return self._allowed[key]

    def is_unknown_piece(self, text: bytes) -> bool:
        """Check whether the tokenizer reads a text as one unknown token."""
        if text not in self._pieces:
            self._pieces[text] = self._ids(text) == [self.unknown]
        return self._pieces[text]

    def _splits(self, raw: bytes, tokens: list[int]) -> bool:
        """Check whether bytes are split into these tokens, alone or before a letter.

        What follows can decide where white space is split. Bytes that are no whole characters can
        be split in any way.
        """
        ids = self._ids(raw)
        return ids is None or ids == tokens or self._ids(raw + b"a")[: len(tokens)] == tokens

    def _ids(self, raw: bytes) -> list[int] | None:
        try:
            return self._tokenizer.encode_as_text(raw.decode()).tolist()
        except UnicodeDecodeError:
            return None


def extend(covers: Covers, byte: int, segmentation: Segmentation) -> Covers:
    """Extend the covers of a text by one byte; tokens that end with it are unread.

    The weights of the result are still relative to the bytes before.
    """
    trie, read, unread = segmentation.trie, [], []
    for cover in covers.read:
        node = cover.node.child(byte, trie)
        if node is not None:
            if cover.probs[node.longer : node.end].any():
                read.append(replace(cover, node=node))
            unread += _ended(cover, node, segmentation)
        if not cover.node.depth and cover.unknown:
            piece = Unread(cover.row, segmentation.unknown, b"", cover.weight * cover.unknown)
            unread += _grown(replace(piece, growing=True), byte, segmentation)
    for cover in covers.unread:
        if cover.growing:
            unread += _grown(cover, byte, segmentation)
        else:
            unread.append(replace(cover, tail=cover.tail + bytes([byte])))
    return Covers(tuple(read), tuple(unread))


def _ended(cover: Cover, node: TrieNode, segmentation: Segmentation) -> Iterator[Unread]:
    """Yield the covers by a token that has just the bytes of a node."""
    ids = segmentation.trie.ids
    for place in range(node.begin, node.longer):
        token, prob = int(ids[place]), float(cover.probs[place])
        if prob and segmentation.allows(cover.token, cover.text, token):
            yield Unread(cover.row, token, segmentation.texts[token], cover.weight * prob)


def _grown(piece: Unread, byte: int, segmentation: Segmentation) -> Iterator[Unread]:
    """Yield an unknown piece with one more byte; it ends there or goes on, both half the time."""
    text, weight = piece.text + bytes([byte]), piece.weight / BYTE_VALUES
    if segmentation.is_unknown_piece(text):
        weight /= 2
        yield replace(piece, text=text, weight=weight, growing=False)
    yield replace(piece, text=text, weight=weight)


def read_tail(
    unread: Unread, first: Cover, segmentation: Segmentation
) -> tuple[list[Cover], list[Unread]]:
    """Move a cover that was just read through the bytes after its last token.

    Args:
        unread: what it was.
        first: what it is now, at the root of the trie.
        segmentation: of the tokenizer.

    Returns:
        The cover, if a token has these bytes; and new covers by tokens that end within them.
    """
    covers = Covers((first,))
    for byte in unread.tail:
        covers = extend(covers, byte, segmentation)
    return list(covers.read), list(covers.unread)


def trim(covers: Covers, most: int) -> tuple[Covers, float]:
    """Drop negligible covers, and all but the most probable; divide the weights by their sum.

    Args:
        covers: with a mass that is not 0.
        most: keep at most so many.

    Returns:
        The covers, whose masses sum to 1; and the share of what was dropped.
    """
    each = (*covers.read, *covers.unread)
    masses = np.array([cover.mass for cover in each])
    total = float(masses.sum())
    least = max(NEGLIGIBLE * total, np.sort(masses)[-most] if len(each) > most else 0.0)
    keeps = masses >= least
    kept = float(masses[keeps].sum())
    scaled = [
        replace(cover, weight=cover.weight / kept)
        for cover, is_kept in zip(each, keeps, strict=True)
        if is_kept
    ]
    read = tuple(cover for cover in scaled if isinstance(cover, Cover))
    unread = tuple(cover for cover in scaled if isinstance(cover, Unread))
    return Covers(read, unread), 1 - kept / total
