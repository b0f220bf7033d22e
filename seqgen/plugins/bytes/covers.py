"""The tokens that can stand behind a byte prefix: covers, their weights, and what comes next.

A cover of the bytes x is a sequence of tokens whose text begins with x and whose last token is
needed for that: it reaches the end of x or passes it. Covers that agree but for their last token
are kept as one: the tokens before, which the model has read, and the rest of x, with which the last
one begins. So

    p(x) = sum over covers of p(tokens read) * p(next token begins with the rest),

and p(next byte | x) is a quotient of two such sums (Phan et al. 2024; Hayase et al. 2025).
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from seqgen.plugins.bytes.trie import Trie, TrieNode
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.byte import OFFSET, ByteTokenizer

# The tokens of a text, as nested triples: those before, the last one, and its bytes; () for none.
Path = tuple[()] | tuple[tuple, int, bytes]

BYTE_VALUES = 256
END, UNKNOWN = ByteTokenizer.eos_id, ByteTokenizer.unk_id
# How many bytes of the last word are compared with the tokenizer's own split: about 24, or about 96
# if those 24 alone are split differently.
REACHES = 24, 96
# What may stand behind white space and decide how it is split.
FOLLOWERS = "a", ".", "1", "\n", "\ua66e", "\ufdfa", "\u4e2d"
# Two letters that few vocabularies have: an unknown piece that may go on does so with one of them.
RARE_LETTERS = "\ua66e", "\U0001d53e"
# Covers that are less probable than this share of all are forgotten.
NEGLIGIBLE = 1e-15
# How many covers of the tokenizer's own split are kept, whatever the limit.
MOST_OWN = 64
# The share of the uniform distribution in the guess of a byte.
UNIFORM_SHARE = 0.1
# The weights are divided by their sum when that is smaller.
SMALL = 1e-100
# Avoids a division by 0.
TINY = np.finfo(np.float64).tiny


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
        own: they can be the tokenizer's own split.
        guess: see `first_bytes`.
    """

    row: int
    weight: float
    probs: np.ndarray
    ends: float
    unknown: float
    path: Path
    own: bool = True
    guess: np.ndarray | None = None

    def first_bytes(self, trie: Trie) -> np.ndarray:
        """Compute the probabilities (260,) of the first byte of the next token, smoothed."""
        if self.guess is None:
            root = trie.root
            masses = np.add.reduceat(self.probs[root.longer : root.end], root.starts)
            self.guess = np.zeros(ByteTokenizer.vocab_size)
            self.guess[OFFSET:] = UNIFORM_SHARE / BYTE_VALUES
            self.guess[root.next_tokens] += (1 - UNIFORM_SHARE) * masses / max(masses.sum(), TINY)
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

    @property
    def own(self) -> bool:
        """It can be the tokenizer's own split."""
        return self.prefix.own

    @property
    def ends_by_itself(self) -> bool:
        """It vanishes where no token has the bytes that follow, and need not be forgotten."""
        return True

    def scaled(self, factor: float) -> Cover:
        """Multiply weight and mass."""
        prefix = replace(self.prefix, weight=self.prefix.weight * factor)
        return Cover(prefix, self.node, self.mass * factor)


@dataclass(slots=True)
class Unread:
    """Cover whose last token the model has not read yet, since it is improbable.

    Until it is read, each byte after it has the probability of a guess: that with which the next
    token began with this byte where the last one began.

    Attributes:
        prefix: the tokens before the last one.
        token: the last one.
        text: its bytes.
        weight: the probability of the tokens, times the factor of all weights.
        own: all of them can be the tokenizer's own split.
        tail: the bytes after the token.
        tail_prob: their probability by the guess.
        growing: the token stands for an unknown piece that has not ended, with `text` so far. Its
            next byte is uniform.
    """

    prefix: TokenPrefix
    token: int
    text: bytes
    weight: float
    own: bool = True
    tail: bytes = b""
    tail_prob: float = 1.0
    growing: bool = False

    @property
    def row(self) -> int:
        """Number of the state that it needs."""
        return self.prefix.row

    @property
    def mass(self) -> float:
        """See `Cover.mass`."""
        return self.weight * self.tail_prob

    @property
    def ends_by_itself(self) -> bool:
        """See `Cover.ends_by_itself`; a guess goes on for ever."""
        return self.growing

    def followed_by(self, byte: int, trie: Trie) -> Unread:
        """Add a byte to the tail."""
        prob = float(self.prefix.first_bytes(trie)[OFFSET + byte])
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
        impossible: the mass of unknown pieces that ended with the last byte because no piece has
            it; it was part of that byte's probability.
    """

    read: Sequence[Cover] = ()
    unread: Sequence[Unread] = ()
    impossible: float = 0.0

    @property
    def mass(self) -> float:
        """Sum of the masses."""
        return sum([cover.mass for cover in self.read]) + sum([each.mass for each in self.unread])

    def next_bytes(self, trie: Trie) -> np.ndarray:
        """Compute the probabilities of the next byte token, (260,), which sum to 1."""
        probs = np.zeros(ByteTokenizer.vocab_size)
        probs[UNKNOWN] = self.impossible
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
            if each.growing:
                probs[OFFSET:] += each.mass / BYTE_VALUES
            else:
                probs += each.mass * each.prefix.first_bytes(trie)
        return probs / probs.sum()


class Segmentation:
    """Tokens that may follow others in the tokenizer's own segmentation.

    Args:
        tokenizer: its tokens.
        every: keep all sequences of tokens, and not only those that can be the tokenizer's own.

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
        self._own: dict[tuple[bytes, tuple[int, ...], bool], bool] = {}
        self._pieces: dict[bytes, tuple[bool, bool]] = {}

    @property
    def possible_bytes(self) -> np.ndarray:
        """Which tokens of the byte tokenizer (260,) can follow some text."""
        possible = np.zeros(ByteTokenizer.vocab_size, bool)
        if self.unknown is not None:
            possible[OFFSET:] = True
        possible[[OFFSET + byte for byte in set(b"".join(self.texts))]] = True
        return possible

    def is_own(self, path: Path, token: int, text: bytes, growing: bool = False) -> bool:
        """Check whether a token after others can be the tokenizer's own split.

        It is if the tokenizer splits its text, joined with that of the tokens before it in the same
        word and of the white space before that, into just these tokens.

        Args:
            path: the tokens before.
            token: its id.
            text: its bytes.
            growing: it is an unknown piece that goes on after the text.
        """
        raw, tokens, first = text, (token,), b""
        for reach in REACHES:
            while path and len(raw) < reach and not (first[:1].isspace() and first.strip()):
                path, before, first = path
                raw, tokens = first + raw, (before, *tokens)
            key = raw, tokens, growing
            if key not in self._own:
                self._own[key] = self._splits(raw, list(tokens), growing)
            if self._own[key] or len(raw) < reach:
                return self._own[key]
        return False

    def path_of(self, tokens: Sequence[int]) -> Path:
        """Make a path of tokens; those that are no text begin a new one."""
        path: Path = ()
        for token in tokens:
            path = (path, token, self.texts[token]) if self.texts[token] else ()
        return path

    def unknown_piece(self, text: bytes) -> tuple[bool, bool]:
        """Check whether a text is one unknown piece, and whether a longer one begins with it."""
        if text not in self._pieces:
            self._pieces[text] = self._unknown_piece(text)
        return self._pieces[text]

    def _unknown_piece(self, text: bytes) -> tuple[bool, bool]:
        try:
            whole = codecs.getincrementaldecoder("utf-8")().decode(text).encode()
        except UnicodeDecodeError:
            return False, False
        if whole != text:  # it ends within a character
            return False, not whole or self.unknown_piece(whole)[1]
        piece = [self.unknown]
        return self._ids(text) == piece, self._splits(text, piece, True)

    def _splits(self, raw: bytes, tokens: list[int], growing: bool) -> bool:
        """Check whether bytes are split into these tokens, whatever follows.

        Bytes that are no whole characters can be split in any way. What follows can decide where
        white space is split.
        """
        ids = self._ids(raw)
        if ids is None:
            return True
        if growing:
            return any(self._ids(raw + letter.encode()) == tokens for letter in RARE_LETTERS)
        if ids == tokens:
            return True
        ends_blank = raw.decode()[-1:].isspace()
        followers = FOLLOWERS if ends_blank and tokens[-1] != self.unknown else ()
        return any(self._ids(raw + c.encode())[: len(tokens)] == tokens for c in followers)

    def _ids(self, raw: bytes) -> list[int] | None:
        try:
            return self._tokenizer.encode_as_text(raw.decode()).tolist()
        except UnicodeDecodeError:
            return None


def extend(covers: Covers, byte: int, segmentation: Segmentation) -> Covers:
    """Extend the covers of a text by one byte; tokens that end with it are unread."""
    trie, read, unread, impossible = segmentation.trie, [], [], 0.0
    growing = [each for each in covers.unread if each.growing]
    for cover in covers.read:
        node, prefix = cover.node.child(byte, trie), cover.prefix
        if node is not None:
            mass = prefix.weight * float(np.add.reduce(prefix.probs[node.longer : node.end]))
            if mass:
                read.append(Cover(prefix, node, mass))
            for place in range(node.begin, node.longer):
                token, prob = int(trie.ids[place]), float(prefix.probs[place])
                if not prob:
                    continue
                text = segmentation.texts[token]
                own = prefix.own and segmentation.is_own(prefix.path, token, text)
                if own or segmentation.every:
                    unread.append(Unread(prefix, token, text, prefix.weight * prob, own))
        if prefix.unknown and not cover.node.depth:
            weight, token = prefix.weight * prefix.unknown, segmentation.unknown
            growing.append(Unread(prefix, token, b"", weight, prefix.own, growing=True))
    for piece in growing:
        unread += _grown(piece, byte, segmentation)
        if not any(segmentation.unknown_piece(piece.text + bytes([byte]))):
            impossible += piece.weight / BYTE_VALUES
    unread += [each.followed_by(byte, trie) for each in covers.unread if not each.growing]
    return Covers(read, unread, impossible)


def _grown(piece: Unread, byte: int, segmentation: Segmentation) -> list[Unread]:
    """Add a byte to an unknown piece; list nothing if no piece has it.

    Where the piece may end or go on, it does both half the time.
    """
    text, grown = piece.text + bytes([byte]), []
    ends, goes_on = segmentation.unknown_piece(text)
    for growing in [False] * ends + [True] * goes_on:
        own = piece.own and segmentation.is_own(piece.prefix.path, piece.token, text, growing)
        if own or segmentation.every:
            weight = piece.weight / BYTE_VALUES / (ends + goes_on)
            grown.append(replace(piece, text=text, weight=weight, own=own, growing=growing))
    return grown


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

    Those that can be the tokenizer's own split come first and are kept beyond the limit: the text
    then has at least the probability of its tokens.

    Args:
        covers: with a mass that is not 0.
        most: keep at most so many.

    Returns:
        The covers, and the share of what was dropped.
    """
    total, every = covers.mass, (*covers.read, *covers.unread)
    if len(every) > most:
        every = sorted(every, key=lambda each: (not each.own, -each.mass))
        own = sum(each.own for each in every)
        every = every[: max(most, min(own, MOST_OWN))]
    least = NEGLIGIBLE * total
    staying = {
        id(each)
        for each in every
        if each.mass >= least or (each.mass and each.own and each.ends_by_itself)
    }
    read = [each for each in covers.read if id(each) in staying]
    unread = [each for each in covers.unread if id(each) in staying]
    kept = Covers(read, unread, covers.impossible)
    dropped = 1 - kept.mass / total
    if total < SMALL:
        read, unread = ([each.scaled(1 / total) for each in some] for some in (read, unread))
        kept = Covers(read, unread, covers.impossible / total)
    return kept, dropped
