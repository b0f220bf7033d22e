"""The tokens that can stand behind a byte prefix: covers, their weights, and what comes next.

A cover of the bytes x is a sequence of tokens whose text begins with x and whose last token is
needed for that: it reaches the end of x or passes it. Covers that agree but for their last token
are kept as one: the tokens before, which the model has read, and the rest of x, with which the last
one begins. So

    p(x) = sum over covers of p(tokens read) * p(next token begins with the rest),

and p(next byte | x) is a quotient of two such sums (Phan et al. 2024; Hayase et al. 2025).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from seqgen.plugins.bytes.trie import Trie, TrieNode
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.byte import OFFSET, ByteTokenizer

# The tokens of a text, as nested triples: those before, the last one, and its bytes; () for none.
Path = tuple[()] | tuple[tuple, int, bytes]

BYTE_VALUES = 256
END, UNKNOWN = ByteTokenizer.eos_id, ByteTokenizer.unk_id
# Segmentations of so many bytes are compared with the tokenizer's.
REACH = 24
# Covers that are less probable than this share of all are forgotten.
NEGLIGIBLE = 1e-15
# The share of the uniform distribution in the guess of a byte.
UNIFORM_SHARE = 0.1
# The weights are divided by their sum when that is smaller.
SMALL = 1e-100


@dataclass(slots=True)
class TokenPrefix:
    """Tokens that the model has read, and what it predicts after them.

    Attributes:
        row: the number of its state.
        weight: the probability of the tokens, times a factor that all covers of a text share.
        probs: (N,), of the next token, by its place in the trie.
        ends: the probability that no more tokens follow.
        unknown: the probability that an unknown piece follows.
        path: the tokens.
        guess: see `first_bytes`.
    """

    row: int
    weight: float
    probs: np.ndarray
    ends: float
    unknown: float
    path: Path
    guess: np.ndarray | None = None

    def first_bytes(self, trie: Trie) -> np.ndarray:
        """Compute the probabilities (260,) of the first byte of the next token, smoothed."""
        if self.guess is None:
            root = trie.root
            masses = np.add.reduceat(self.probs[root.longer : root.end], root.starts)
            self.guess = np.zeros(ByteTokenizer.vocab_size)
            self.guess[OFFSET:] = UNIFORM_SHARE / BYTE_VALUES
            self.guess[root.next_tokens] += (1 - UNIFORM_SHARE) * masses / masses.sum()
        return self.guess


@dataclass(slots=True)
class Cover:
    """Tokens that the model has read, and the rest of the bytes, which the next token begins with.

    Attributes:
        prefix: the tokens.
        node: the rest of the bytes.
        mass: the probability of both, times the factor of the weights. Tokens that end with the
            last byte are left out, except at the root: those have become covers of their own.
    """

    prefix: TokenPrefix
    node: TrieNode
    mass: float

    @property
    def row(self) -> int:
        """Number of the state that it needs."""
        return self.prefix.row

    def scaled(self, factor: float) -> Cover:
        """Multiply weight and mass."""
        prefix = replace(self.prefix, weight=self.prefix.weight * factor)
        return Cover(prefix, self.node, self.mass * factor)


@dataclass(slots=True)
class Unread:
    """Cover whose last token the model has not read yet, since it is improbable.

    Until it is read, each byte after it has the probability of a guess: that with which the next
    token began with this byte where the last one began. Bytes of an unknown piece are uniform.

    Attributes:
        row: the number of the state before the token.
        token: the last one.
        text: its bytes.
        weight: the probability of the tokens, times the factor of all weights.
        before: the tokens before it.
        guess: (260,), of each byte after the token; None for the uniform distribution.
        tail: the bytes after the token.
        tail_prob: their probability by the guess.
        growing: the token stands for an unknown piece that has not ended, with `text` so far.
    """

    row: int
    token: int
    text: bytes
    weight: float
    before: Path
    guess: np.ndarray | None = None
    tail: bytes = b""
    tail_prob: float = 1.0
    growing: bool = False

    @property
    def mass(self) -> float:
        """See `Cover.mass`."""
        return self.weight * self.tail_prob

    def followed_by(self, byte: int) -> Unread:
        """Add a byte to the tail."""
        prob = 1 / BYTE_VALUES if self.guess is None else float(self.guess[OFFSET + byte])
        return replace(self, tail=self.tail + bytes([byte]), tail_prob=self.tail_prob * prob)

    def scaled(self, factor: float) -> Unread:
        """Multiply weight and mass."""
        return replace(self, weight=self.weight * factor)


@dataclass(slots=True)
class Covers:
    """All covers of the bytes of one text that are kept; none before the start token.

    Attributes:
        read: those whose tokens the model has read.
        unread: those whose last token it has not.
    """

    read: Sequence[Cover] = ()
    unread: Sequence[Unread] = ()

    @property
    def mass(self) -> float:
        """Sum of the masses."""
        return sum([cover.mass for cover in self.read]) + sum([each.mass for each in self.unread])

    def next_bytes(self) -> np.ndarray:
        """Compute the probabilities of the next byte token, (260,), which sum to 1."""
        probs = np.zeros(ByteTokenizer.vocab_size)
        for cover in self.read:
            node, prefix = cover.node, cover.prefix
            if len(node.starts):
                masses = np.add.reduceat(prefix.probs[node.longer : node.end], node.starts)
                probs[node.next_tokens] += prefix.weight * masses
            if not node.depth:
                probs[END] += prefix.weight * prefix.ends
                if prefix.unknown:
                    probs[OFFSET:] += prefix.weight * prefix.unknown / BYTE_VALUES
                # What is left belongs to tokens without text, such as padding.
                rest = 1 - float(prefix.probs.sum()) - prefix.ends - prefix.unknown
                probs[UNKNOWN] += prefix.weight * max(0.0, rest)
        for each in self.unread:
            if each.guess is None:
                probs[OFFSET:] += each.mass / BYTE_VALUES
            else:
                probs += each.mass * each.guess
        return probs / probs.sum()


class Segmentation:
    """Tokens that may follow others in the tokenizer's own segmentation.

    Args:
        tokenizer: its tokens.
        every: allow all sequences of tokens. Otherwise a token is allowed only if the tokenizer
            splits its text, joined with that of the tokens before it in the same word, into just
            these tokens.

    Attributes:
        trie: of the tokens' bytes.
        texts: the bytes of each token; empty for those that are no text.
        unknown: the token that stands for unknown pieces; None where nothing is unknown.
    """

    def __init__(self, tokenizer: Tokenizer, every: bool) -> None:
        self.every, self._tokenizer = every, tokenizer
        special = set(tokenizer.special_ids)
        self.texts = [b"" if i in special else raw for i, raw in enumerate(tokenizer.token_bytes)]
        self.trie = Trie(self.texts)
        self.unknown = None if tokenizer.complete else tokenizer.unk_id
        self._allowed: dict[tuple[bytes, tuple[int, ...]], bool] = {}
        self._pieces: dict[bytes, bool] = {}

    def allows(self, path: Path, token: int) -> bool:
        """Check whether a token may follow others."""
        if self.every:
            return True
        raw, tokens, text = self.texts[token], (token,), b""
        while path and len(raw) < REACH and not text[:1].isspace():
            path, before, text = path
            raw, tokens = text + raw, (before, *tokens)
        key = raw, tokens
        if key not in self._allowed:
            self._allowed[key] = self._splits(raw, list(tokens))
        return self._allowed[key]

    def path_of(self, tokens: Sequence[int]) -> Path:
        """Make a path of tokens; those that are no text begin a new one."""
        path: Path = ()
        for token in tokens:
            path = (path, token, self.texts[token]) if self.texts[token] else ()
        return path

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
    """Extend the covers of a text by one byte; tokens that end with it are unread."""
    trie, read, unread = segmentation.trie, [], []
    for cover in covers.read:
        node, prefix = cover.node.child(byte, trie), cover.prefix
        if node is not None:
            mass = prefix.weight * float(np.add.reduce(prefix.probs[node.longer : node.end]))
            if mass:
                read.append(Cover(prefix, node, mass))
            for place in range(node.begin, node.longer):
                token, prob = int(trie.ids[place]), float(prefix.probs[place])
                if prob and segmentation.allows(prefix.path, token):
                    text, weight = segmentation.texts[token], prefix.weight * prob
                    guess = prefix.first_bytes(trie)
                    unread.append(Unread(prefix.row, token, text, weight, prefix.path, guess))
        if prefix.unknown and not cover.node.depth:
            weight = prefix.weight * prefix.unknown
            token = segmentation.unknown
            piece = Unread(prefix.row, token, b"", weight, prefix.path, growing=True)
            unread += _grown(piece, byte, segmentation)
    for each in covers.unread:
        if each.growing:
            unread += _grown(each, byte, segmentation)
        else:
            unread.append(each.followed_by(byte))
    return Covers(read, unread)


def _grown(piece: Unread, byte: int, segmentation: Segmentation) -> Iterator[Unread]:
    """Yield an unknown piece with one more byte; it ends there or goes on, both half the time."""
    text, weight = piece.text + bytes([byte]), piece.weight / BYTE_VALUES
    if segmentation.is_unknown_piece(text):
        weight /= 2
        yield replace(piece, text=text, weight=weight, growing=False)
    yield replace(piece, text=text, weight=weight)


def read_tail(prefix: TokenPrefix, tail: bytes, segmentation: Segmentation) -> Covers:
    """Move a cover that was just read through the bytes after its last token.

    Returns:
        The cover, if a token has these bytes; and new ones by tokens that end within them.
    """
    covers = Covers([Cover(prefix, segmentation.trie.root, prefix.weight)])
    for byte in tail:
        covers = extend(covers, byte, segmentation)
    return covers


def trim(covers: Covers, most: int) -> tuple[Covers, float]:
    """Drop negligible covers, and all but the most probable.

    Args:
        covers: with a mass that is not 0.
        most: keep at most so many.

    Returns:
        The covers, and the share of what was dropped.
    """
    total, every = covers.mass, (*covers.read, *covers.unread)
    if len(every) > most:
        every = sorted(every, key=lambda each: -each.mass)[:most]
    probable = {id(each) for each in every if each.mass >= NEGLIGIBLE * total}
    read = [each for each in covers.read if id(each) in probable]
    unread = [each for each in covers.unread if id(each) in probable]
    kept = Covers(read, unread)
    dropped = 1 - kept.mass / total
    if total < SMALL:
        kept = Covers(*([each.scaled(1 / total) for each in some] for some in (read, unread)))
    return kept, dropped
