"""Prefix tree of a vocabulary's bytes: which tokens begin with some bytes, and what follows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqgen.text.tokenizers.byte import OFFSET


class TrieNode:
    """Tokens that begin with the same bytes: a range of the vocabulary sorted by bytes.

    Attributes:
        depth: number of those bytes.
        begin: place of the first token.
        longer: place of the first token with more bytes; those before it have just these.
        end: place after the last token.
        next_tokens: (C,), the bytes that may follow, ascending, as tokens of the byte tokenizer.
        starts: (C,), where the tokens of each begin, counted from `longer`.
    """

    __slots__ = ("_children", "begin", "depth", "end", "longer", "next_tokens", "starts")

    def __init__(self, depth: int, begin: int, end: int, trie: Trie) -> None:
        self.depth, self.begin, self.end = depth, begin, end
        lengths = trie.lengths[begin:end]
        self.longer = begin + int(np.searchsorted(lengths > depth, True))
        column = trie.bytes_at(depth, self.longer, end)
        self.starts = np.flatnonzero(np.diff(column, prepend=-1))
        self.next_tokens = column[self.starts] + OFFSET
        self._children: dict[int, TrieNode | None] = {}

    def child(self, byte: int, trie: Trie) -> TrieNode | None:
        """Return the node of one more byte; None if no token has it."""
        if byte not in self._children:
            self._children[byte] = self._make_child(byte, trie)
        return self._children[byte]

    def _make_child(self, byte: int, trie: Trie) -> TrieNode | None:
        at = int(np.searchsorted(self.next_tokens, byte + OFFSET))
        if at == len(self.next_tokens) or self.next_tokens[at] != byte + OFFSET:
            return None
        ends = [*self.starts[1:].tolist(), self.end - self.longer]
        begin = self.longer + int(self.starts[at])
        return TrieNode(self.depth + 1, begin, self.longer + ends[at], trie)


class Trie:
    """Prefix tree of the tokens that have bytes.

    Args:
        texts: the bytes of each of V tokens; empty for tokens that are no text.

    Attributes:
        ids: (N,), the tokens with bytes, sorted by them.
        lengths: (N,), how many bytes each has.
        root: all of them.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        known = sorted((i for i, raw in enumerate(texts) if raw), key=texts.__getitem__)
        self.ids = np.array(known, dtype=np.int64)
        self.lengths = np.array([len(texts[i]) for i in known], dtype=np.int64)
        self._flat = np.frombuffer(b"".join(texts[i] for i in known), dtype=np.uint8)
        self._begins = np.cumsum(self.lengths) - self.lengths
        self.root = TrieNode(0, 0, len(known), self)

    def bytes_at(self, depth: int, begin: int, end: int) -> np.ndarray:
        """Return the byte number `depth` of each token in a range, as int64."""
        return self._flat[self._begins[begin:end] + depth].astype(np.int64)
